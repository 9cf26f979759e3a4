"""The SQS door: Amazon's queue API, in AWS JSON 1.0 and in the older query protocol, over topics.

A queue is a topic, its consumers are the group `default`. `door` takes requests and gives answers,
`shapes` says what there is in them, `query` reads forms and writes XML, `faults` are the errors.
`queues` knows how a queue's attributes are kept in a topic, `messages` how a message's are kept in
headers. The actions are in `manage`, `sending`, `receiving`, `settling` and `moves`.
"""
