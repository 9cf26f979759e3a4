"""The wire's door: frames, checked as what comes from strangers, then handed to the shard.

door         GET /v1/wire that upgrades, POST /v1/wire with one frame
connection   frames in and out, their bounds, and the end
calls        one request: what it waits for, and what it is told
executor     what each verb does
questions    what each query does; errands: what each errand does
rights       who may do it; checks: what values may be
"""
