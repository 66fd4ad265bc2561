"""A training that reports its progress; its steps only wait."""

import time

import paddlewheel_progress as progress

STEPS = 5000
for step in range(1, STEPS + 1):
    time.sleep(0.1)  # Here the script trains.
    loss = 1 / step
    progress.report(step=step, total_steps=STEPS, loss=loss, learning_rate=0.01)
