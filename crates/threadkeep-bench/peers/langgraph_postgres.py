"""The turns of the benchmark through LangGraph's PostgreSQL checkpointer: prints how many were stored in a second.

Usage: langgraph_postgres.py ADDRESS PROCESSES THREADS_EACH TURNS_EACH

Every thread has a connection and a saver of its own, since one saver lets one caller at a time through. A turn adds a message
of 1 KiB to the channel `messages` and puts the checkpoint, as the framework does after every step, without the table of
pending writes that it fills beside it.
"""

import multiprocessing
import sys
import threading
import time
import uuid

import psycopg
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

MESSAGE_BYTES = 1024


def connect(address):
    return psycopg.connect(address, autocommit=True, prepare_threshold=0, row_factory=dict_row)


def converse(address, barrier, turns, failures):
    try:
        with connect(address) as connection:
            saver = PostgresSaver(connection)
            config = {"configurable": {"thread_id": str(uuid.uuid4()), "checkpoint_ns": ""}}
            messages, version = [], None
            barrier.wait()
            for turn in range(turns):
                text = uuid.uuid4().hex * (MESSAGE_BYTES // 32)
                messages.append({"id": str(uuid.uuid4()), "type": "ai", "content": text})
                version = saver.get_next_version(version, None)
                checkpoint = empty_checkpoint()
                checkpoint["channel_values"] = {"messages": list(messages)}
                checkpoint["channel_versions"] = {"messages": version}
                metadata = {"source": "loop", "step": turn, "parents": {}}
                config = saver.put(config, checkpoint, metadata, {"messages": version})
            barrier.wait()
    except BaseException as error:
        failures.put(repr(error))
        barrier.abort()


def crowd(address, barrier, threads, turns, failures):
    each = [threading.Thread(target=converse, args=(address, barrier, turns, failures)) for _ in range(threads)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()


def main():
    address, processes, threads, turns = sys.argv[1], *map(int, sys.argv[2:5])
    with connect(address) as connection:
        PostgresSaver(connection).setup()
    barrier = multiprocessing.Barrier(processes * threads + 1)
    failures = multiprocessing.SimpleQueue()
    each = [
        multiprocessing.Process(target=crowd, args=(address, barrier, threads, turns, failures))
        for _ in range(processes)
    ]
    for process in each:
        process.start()
    try:
        barrier.wait()
        begun = time.perf_counter()
        barrier.wait()
    except threading.BrokenBarrierError:
        sys.exit(failures.get())
    seconds = time.perf_counter() - begun
    for process in each:
        process.join()
    print(processes * threads * turns / seconds)


if __name__ == "__main__":
    main()
