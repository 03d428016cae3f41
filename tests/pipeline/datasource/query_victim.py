"""A streaming query to be killed: ``-m tests.pipeline.datasource.query_victim LOG OUT CHECKPOINT``.

It says when it begins and ends a batch, and ends by itself when it has read all that there was at its start.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from veen.pipeline import register
from veen.pipeline.spark import session


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(log: str, out: str, checkpoint: str) -> None:
    def write(frame: DataFrame, number: int) -> None:
        say(f"begins {number}")
        frame.write.mode("overwrite").parquet(str(Path(out) / f"batch={number:08d}"))
        say(f"ends {number}")

    with session.running(app="victim", master="local[2,3]", oneshot=True) as spark:
        register(spark)
        reader = spark.readStream.format("veen").option("startingOffsets", "earliest")
        frame = (
            reader.option("maxOffsetsPerTrigger", 30)
            .option("columns", "label,stream_seq,leaf_hash")
            .load(log)
        )
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
