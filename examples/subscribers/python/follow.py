"""Print what happens to one job, from its beginning to its end: `python follow.py default/sine`."""

import asyncio
import sys

import paddlewheel
from paddlewheel.sdk import JobDeleted, JobFailed, JobSucceeded


async def main(job: str) -> None:
    async for event in paddlewheel.events(job=job, since="all"):
        print(f"{event.time:%H:%M:%S}", event.type.rpartition(".")[2], event.object.name, flush=True)
        match event.data:
            case JobSucceeded(seconds=seconds, results=results):
                print("took", seconds, "s:", dict(results))
                return
            case JobFailed(message=message):
                print("failed:", message)
                return
            case JobDeleted():
                return


asyncio.run(main(sys.argv[1]))
