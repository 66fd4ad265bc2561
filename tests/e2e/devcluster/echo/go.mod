module paddlewheel.local/tests/echo

go 1.26.0
