module paddlewheel.local/images/pause

go 1.26.0
