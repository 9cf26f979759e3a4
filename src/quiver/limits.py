"""Every bound of Quiver: its value, its unit in the name, and its reason.

Nothing here is unbounded on purpose. Values that users meet are checked before anything is stored.
Those of one section, "the level of the log", may not simply be changed: see there.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# -- messages --------------------------------------------------------------------------------------
BODY_BYTES_MAX: Final = (
    16 * MIB
)  # larger things belong in a file store, with a pointer in the message
KEY_BYTES_MAX: Final = 1 * KIB  # a key is an identity, not content
HEADERS_MAX: Final = 64  # per message
HEADERS_BYTES_MAX: Final = (
    2 * MIB
)  # names and values of one message together; SQS has 1 MiB, in base64
DEDUP_ID_BYTES_MAX: Final = 256
DURATION_SECONDS_MAX: Final = 100 * 366 * 86_400  # a century: any real delay, and no overflow
LEASE_SECONDS_MAX: Final = 7 * 86_400  # a forgotten lease must end some day
WAIT_SECONDS_MAX: Final = 3_600  # one long poll

# -- batches ---------------------------------------------------------------------------------------
BATCH_ROWS_MAX: Final = 1_000_000  # what one send may carry
BATCH_BYTES_MAX: Final = 64 * MIB  # decompressed; also one log entry
RECEIVE_MESSAGES_MAX: Final = 100_000  # what one receive may lease
READ_MESSAGES_MAX: Final = 10_000  # one step of a replay
REDRIVE_MESSAGES: Final = 1_000  # moved by one entry of the log
ENCODED_BYTES_MAX: Final = 128 * MIB  # a stored batch, decompressed, with all that Arrow adds to it
ENVELOPE_BYTES_MAX: Final = 4 * KIB  # of a body that is encoded without Arrow, if it is sent alone
TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999: what a datetime can say
SIZE_BYTES_MAX: Final = 2**62  # more than any disk, and no overflow
KEY_HASHES_CACHED: Final = 16_384  # recent keys whose hash is remembered; at most 18 MiB of them

# -- questions in SQL ------------------------------------------------------------------------------
PAGE_BYTES: Final = 16 * MIB  # one step of a scan, as far as the core knows how large messages are
BROWSED_SLICES_MAX: Final = 2_000  # of a page that is read: 8 µs each, and everybody waits
CHOOSE_SECONDS: Final = (
    2.0  # then a node that chooses messages for a client tells what it has found
)
PAGE_MESSAGES_MAX: Final = 50_000  # of a step of a scan: with 20,000 it takes a quarter longer
PAGE_MESSAGES_FIRST: Final = 100  # before it knows how large they are
SQL_CHARS_MAX: Final = 100_000  # a question that a person or a program writes
SQL_TOKENS_MAX: Final = 20_000  # of it: names, numbers, signs; DuckDB takes two seconds for as many
SQL_DEPTH_MAX: Final = 100  # brackets and cases inside each other
SQL_PATH_NAMES_MAX: Final = (
    32  # names joined by dots: 5,000 take DuckDB 8 seconds, twice as many 32
)
SQL_CHAIN_TOKENS_MAX: Final = 500  # in a row without a comma, `and` or `or`: each may be one level
SQL_MEMORY_BYTES_MAX: Final = (
    512 * MIB
)  # what DuckDB may buffer; then it spills to temporary files. What functions make is not in it
SQL_SPILL_BYTES_MAX: Final = 64 * 1024 * MIB  # of those files
SQL_THREADS_MAX: Final = (
    4  # of DuckDB, and no more than half of the cores: the rest is for messages
)
SQL_RESULT_BYTES_MAX: Final = 512 * MIB  # an answer is a table in memory

# -- names -----------------------------------------------------------------------------------------
NAME_CHARS_MAX: Final = 255
PARTITIONS_MAX: Final = 1_024  # per topic
LABELS_BYTES_MAX: Final = 256 * KIB  # a topic's labels; SQS policies and tags are kept there
BATCH_MAX: Final = 2**62  # an application's batches are numbered up to it
STAGED_SECONDS_MAX: Final = 86_400  # how long staged messages wait to be published
TRANSACTION_COMMANDS_MAX: Final = 1_000

# -- the level of the log --------------------------------------------------------------------------
# These decide what `apply` makes of an entry, so they belong to the log and not to the version that
# runs (`model/levels`). Whoever changes one adds a level, and writes the old value down there.
TOPICS_MAX: Final = 10_000
GROUPS_MAX: Final = 1_000  # per topic
MEMBERS_MAX: Final = 1_000  # per group
PRODUCERS_MAX: Final = 10_000  # named producers a topic remembers; the oldest idle one makes room
APPLICATIONS_MAX: Final = (
    10_000  # whose last batch a topic remembers; the oldest idle one makes room
)
DEDUP_IDS_MAX: Final = (
    1_000_000  # per topic; past it a send with an id is refused, never un-deduplicated
)
PRIORITY_MAX: Final = 9  # 0 is the default and the lowest
REASON_CHARS_MAX: Final = 1_000  # longer reasons (tracebacks) are cut, never refused
RECEIVE_BYTES_MAX: Final = 64 * MIB  # a receive stops early rather than fill the memory
RESERVED_MS_MIN: Final = 200  # what a consumer has reserved is its own for so long; then one that
# waits may take it over: longer than a begin takes, and too short for anybody to notice
STOLEN_MS_MIN: Final = 1_000  # the same for what was taken over, so that two consumers do not take
# it from each other all the time
TOLD_SLICE_BYTES: Final = 72  # counted for the numbers of a slice, which are less when it is told
TOLD_ORIGIN_BYTES: Final = 128  # the same for its origin, besides the texts in it
MATURE_MAX: Final = 10_000  # delayed messages made ready by one receive
EXPIRE_MAX: Final = 10_000  # messages whose time to live is ended by one entry
SWEEP_HOLE_MIN: Final = 64  # settled messages in the middle of others are cut out from so many on
PEERS_BYTES_MAX: Final = 64 * KIB  # who shares the log; each snapshot has it

# -- the node --------------------------------------------------------------------------------------
PENDING_REQUESTS_MAX: Final = 100_000  # waiting for the log; past it callers get Overloaded
PENDING_BYTES_MAX: Final = 256 * MIB
COMMIT_BYTES_MAX: Final = (
    16 * MIB
)  # one write and sync takes at most this much more than its first request
COMMIT_REQUESTS_MAX: Final = 4_096
CLOCK_BEHIND_SECONDS_MAX: Final = 86_400  # the log may be ahead of the clock: clocks are set back
CLOCK_AHEAD_SECONDS_TOLD: Final = (
    86_400  # a clock so far ahead of the last entry is told in the log
)
CLOCK_AHEAD_SECONDS_MAX: Final = 366 * 86_400  # a queue is rarely closed for longer: ask first
BACKUP_TRIES_MAX: Final = (
    20  # of a backup, each from a newer snapshot that its owner made meanwhile
)
BACKUP_STEP_BYTES: Final = MIB  # read and written at once by a backup
CHORES_SECONDS: Final = 60  # how late an idle topic may let go of what is too old
FULL_DISK_PAUSE_MS: Final = 1_000  # between attempts to log what is due when the disk has no room
SLEEP_SECONDS_MAX: Final = 3_600  # the longest sleep of an idle shard; timers overflow far beyond
CACHE_BYTES_MAX: Final = 64 * MIB  # decoded batches kept for readers
SERVED_CACHE_BYTES_MAX: Final = 128 * MIB  # the same of `quiver serve`, whose readers are many
CACHED_BATCH_BYTES: Final = 2 * KIB  # what each of them takes besides its messages (measured)
READERS_SECONDS_MAX: Final = (
    5.0  # that whoever opens a directory waits for those who look at its end
)
REPLICA_TRIES_MAX: Final = 10  # of a reader whose files are replaced by their owner meanwhile

# -- serving ---------------------------------------------------------------------------------------
HEAD_SECONDS_MAX: Final = 10.0  # from the first byte of a request to the end of its head
HEAD_BYTES_MAX: Final = 64 * KIB  # address and headers of a request, and as many of trailers
BODY_PAUSE_SECONDS_MAX: Final = 20.0  # between two pieces of a request's body
BODY_BYTES_PER_SECOND_MIN: Final = 4 * KIB  # a body that comes more slowly than this is cut, after
# one such pause that everybody is granted
BODY_SECONDS_MAX: Final = 600.0  # for all of a body, however lively it is
BODY_FREE_BYTES: Final = 32 * KIB  # of a body do not count as in flight: acks get through always
BODY_AHEAD_BYTES: Final = 256 * KIB  # of a body are read before somebody has asked for it
ANSWER_PAUSE_SECONDS_MAX: Final = 30.0  # in which a client reads nothing of its answer
ANSWER_BYTES_PER_SECOND_MIN: Final = 4 * KIB  # an answer that is read more slowly is cut, after one
# such pause that everybody is granted
LINGER_SECONDS_MAX: Final = 2.0  # a body that was refused may go on so long, so that its sender
# comes to read the answer
ACCEPT_PAUSE_SECONDS: Final = 0.1  # after a connection that could not be accepted
IDLE_SECONDS_MAX: Final = 75.0  # a connection without a request; clients' pools let go earlier
DRAIN_SECONDS_MAX: Final = 10.0  # a node that ends waits so long for what still runs
LEAVE_SECONDS_MAX: Final = 1.0  # so long it answers clients that have not left, if with a refusal:
# what they had sent before they knew that it ends may be tried again
CLOSE_SECONDS_MAX: Final = 60.0  # and then for the disk
CONNECTIONS_MAX: Final = 16_000  # open at a time: about 14 KiB each, while nothing comes (measured)
CONNECTIONS_PER_PEER_MAX: Final = 12_000  # of one address, so that it cannot keep out all others
PIPELINED_REQUESTS_MAX: Final = 32  # sent on one connection before the first has its answer
IN_FLIGHT_BYTES_MAX: Final = (
    512 * MIB
)  # bodies of requests, and of answers until they are read, in all
GZIP_MEMBERS_MAX: Final = 10_000  # of a body in gzip: each costs the same, however little is in it
ANSWERS_MADE_MAX: Final = 8  # messages read, received or fetched that are made answers at a time
UNPACKERS_MAX: Final = 2  # bodies decompressed at a time: zstd may need 128 MiB for one
THREADS_MAX: Final = 32  # of a node, for reading and decoding batches, large JSON, compression
SQL_QUERIES_MAX: Final = (
    2  # questions and conditions in SQL that a node works on at a time, each in
)
# a process of its own
SQL_WAITING_MAX: Final = 64  # more that wait for their turn; past it they get Overloaded
SQL_HEAP_BYTES_MAX: Final = 896 * MIB  # of memory that such a process may allocate, by the kernel
SQL_PROCESS_BYTES_MAX: Final = 1024 * MIB  # resident, libraries included; past it it is ended
SQL_KEPT_BYTES_MAX: Final = 256 * MIB  # resident after a query: a larger process is not used again
SQL_WATCH_SECONDS: Final = 0.1  # between two looks at its resident memory
SQL_START_SECONDS: Final = 30.0  # for its start: 0.4 s if the machine is idle
SQL_REQUEST_BYTES_MAX: Final = 256 * MIB  # to it: a page is one batch at least, decompressed
SQL_REPLY_BYTES_MAX: Final = 160 * MIB  # of its answer: a table, with all that Arrow adds to it
SQL_ANSWER_BYTES_MAX: Final = 64 * MIB  # of a table that a node answers a question with
SQL_SECONDS_MAX: Final = 30.0  # for a question, or for a condition on one page; then it is ended
READY_SECONDS_MAX: Final = 2.0  # a queue that is ready answers a question in this time
HOSTS_REMEMBERED_MAX: Final = (
    64  # Host headers of which it is known that they name the node, or that they are addresses
)
ALLOCATOR_MAP_BYTES: Final = (
    32 * MIB
)  # larger buffers go back to the system as soon as they are free
ALLOCATOR_KEEP_BYTES: Final = 64 * MIB  # of smaller ones, so much is kept for the next requests
ALLOCATOR_QUIET_SECONDS: Final = (
    5.0  # without more than that in flight; then all that is free goes back
)
GC_NEW_OBJECTS: Final = 5_000  # before the garbage collector looks: more than requests keep
REQUEST_ID_CHARS_MAX: Final = 128  # of a client's own X-Request-Id; longer ones are replaced

# -- the native door -------------------------------------------------------------------------------
API_JSON_BYTES_MAX: Final = 8 * MIB  # a request of many parts in JSON, each of them an object
API_MESSAGE_BYTES_MAX: Final = 24 * MIB  # one message in JSON: base64 takes a third more
API_ARROW_BYTES_MAX: Final = ENCODED_BYTES_MAX  # a request in Arrow, decompressed
API_SMALL_BYTES_MAX: Final = 1 * MIB  # any other request
API_ROWS_MAX: Final = 10_000  # of a table as JSON; as Arrow there may be more
API_ROWS_BYTES_MAX: Final = 8 * MIB  # of these, as a table: each value becomes an object
ARROW_MESSAGES_MAX: Final = 1_024  # schema, dictionaries and batches of one stream from outside
ARROW_HEAD_BYTES_MAX: Final = 64 * KIB  # of each: ours need a few hundred
INLINE_BYTES_MAX: Final = 32 * KIB  # decoded in the event loop; more goes to a thread
INLINE_ROWS_MAX: Final = 500  # receipts and ranges that are understood there
NOTICES_MAX: Final = 100  # warnings that are listed for one request; more say nothing new
WARNING_CHARS_MAX: Final = 500  # of each, in an answer
WARNINGS_BYTES_MAX: Final = 4_096  # of all of them: clients take 8 KiB in one header
COMPRESS_BYTES_MIN: Final = 4 * KIB  # smaller bodies are sent as they are

# -- the wire --------------------------------------------------------------------------------------
FRAME_BYTES_MAX: Final = 160 * MIB  # a batch, with all that goes with it
FRAME_HEAD_BYTES_MAX: Final = 16 * MIB  # what a receive of as many lone messages as possible says
FRAME_BUFFER_BYTES: Final = 64 * KIB  # what is received at once of small frames, if many come
FRAME_BUFFER_BYTES_MIN: Final = 2 * KIB  # the same, if few come
FRAME_JOINED_BYTES_MAX: Final = 16 * KIB  # of a payload that is copied behind its head: one write
WIRE_REQUESTS_MAX: Final = 1_000  # of one connection without an answer; then nothing more is read
WIRE_UNREAD_BYTES_MAX: Final = 32 * MIB  # answers of one connection not read yet; then likewise
WIRE_OPEN_BYTES_MAX: Final = 32 * MIB  # frames of one connection without an answer; then likewise
WIRE_INLINE_BYTES_MAX: Final = 64 * KIB  # messages understood or told in the loop; more in a thread
WIRE_TOLD_BYTES_MAX: Final = 7 * MIB  # of a lease: where its messages are, and why they died;
# half of a head is 8 MiB, and has room for what else is to be said
WIRE_HEAD_BYTES_MAX: Final = 8 * MIB  # of a request
WIRE_HEAD_FACTOR: Final = 32  # a large head becomes objects, so many times its size
WIRE_ASKED_BYTES_MAX: Final = 4 * MIB  # a command or query; chosen messages are many ranges
WIRE_SETTLED_BYTES_MAX: Final = 4 * MIB  # as many lone messages as a receive gives, and some
WIRE_TOPICS_KNOWN_MAX: Final = 10_000  # numbers of topics whose names are remembered
WIRE_PING_SECONDS: Final = 20.0  # of silence; then who waits for an answer asks for a sign of life
WIRE_PONG_SECONDS: Final = 10.0  # in which it comes, or the connection is given up

# -- the client of a node --------------------------------------------------------------------------
WIRE_WAITING_MAX: Final = 900  # receives of one connection that wait; the rest is for what does not
WIRE_CANCELLED_MAX: Final = 1_000  # requests given up, whose answers may come and are given back
WIRE_STUCK_SECONDS: Final = 1.0  # between looks at a node that takes nothing more
WIRE_LOOK_SECONDS: Final = (
    0.25  # between looks of threads that sleep whether one of them is to read
)
POSTING_THREADS_MAX: Final = 64  # for calls over plain HTTP that no thread waits for
ATTENDANT_IDLE_SECONDS: Final = 5.0  # then the thread for calls that nothing waits for ends
PATIENCE_REMOTE_SECONDS: Final = 30.0  # how long a call is tried again before it fails
OPEN_REMOTE_SECONDS: Final = 5.0  # less for the first: a wrong address should be noticed
OPEN_ATTEMPT_SECONDS_MIN: Final = 2.0  # for each host then: a busy node takes its time
CONNECT_SECONDS_MAX: Final = 5.0  # to open one connection
ANSWER_SECONDS_MAX: Final = 60.0  # from a request to its answer, besides what it asks to wait
BACKOFF_SECONDS_MIN: Final = 0.05  # before the second attempt; doubled with each further one
BACKOFF_SECONDS_MAX: Final = 2.0
LANE_BYTES_MAX: Final = 8 * MIB  # of a producer's batches that go in one request
POOL_CONNECTIONS_MAX: Final = 100  # of one link, for requests that are answered at once
EXTENDED_RECEIPTS_MAX: Final = 10_000  # extended as text, whose deadlines a client remembers: 3 MB

# -- the ledger ------------------------------------------------------------------------------------
LEDGER_ROWS_MAX: Final = 200_000  # in memory; a snapshot then writes them out: 24 MB
LEDGER_CHARS_MAX: Final = 16 * MIB  # of the texts of those rows: names, and reasons of failures
LEDGER_FILES_MAX: Final = 32  # past it, files that are neighbours in time become one
LEDGER_GROUP_ROWS: Final = 100_000  # of a Parquet row group: what a reader has in memory at a time

# -- figures ---------------------------------------------------------------------------------------
REASON_KINDS_MAX: Final = 50  # kinds of reasons of dead letters that are counted each; then "other"
REASON_KIND_CHARS_MAX: Final = 40  # of such a kind
OVERVIEW_STEP_SECONDS: Final = 0.001  # for figures of topics, before others get their turn
METRIC_TOPICS_MAX: Final = 100  # topics with figures of their own in /metrics; the rest is "other"
METRIC_GROUPS_MAX: Final = 300  # groups with figures of their own
METRIC_REQUESTS_MAX: Final = 300  # kinds of requests (door, operation, code) that are counted each

# -- producers -------------------------------------------------------------------------------------
PRODUCER_ROWS: Final = 1_000  # a producer's batch is sent when it has this many messages
PRODUCER_BYTES: Final = 1 * MIB  # or this many bytes
PRODUCER_PENDING_BYTES_MAX: Final = 16 * MIB  # unconfirmed; past it send() waits: back-pressure

# -- consumers -------------------------------------------------------------------------------------
CONSUMER_WAIT_SECONDS: Final = 1.0  # one wait for messages; others may be more in need afterwards
CONSUMER_BEGIN_SECONDS: Final = (
    0.2  # of work that is begun at once: a round trip is little of it, and
)
# nobody waits longer for what a busy consumer has begun and not handed out
CONSUMER_BEGUN_SECONDS_MAX: Final = 1.0  # then what was begun and not handed out is given back
CONSUMER_CLOSE_SECONDS: Final = 2.0  # to give back what was not handed out; else its lease ends
CONSUMER_ACK_LINGER_SECONDS: Final = (
    0.005  # an ack in the background waits for others at most so long
)
CONSUMER_ACKS_MIN: Final = (
    100  # as many may be collected, also if fewer messages are received ahead
)
CONSUMER_PATIENCE_SECONDS: Final = 2.0  # a node that is away for longer is logged as lost
KEPT_MAX: Final = (
    10_000  # messages of a queue whose leases are kept: a few entries a second for all
)

# -- the log ---------------------------------------------------------------------------------------
WAL_FILE_BYTES: Final = 64 * MIB  # a file is closed when it has grown past this
WAL_ALLOCATE_BYTES: Final = (
    8 * MIB
)  # disk space is reserved in such steps, so a full disk is met early
WAL_RESERVE_BYTES: Final = 1 * MIB  # kept for settling and housekeeping when the disk is full
SNAPSHOT_LOG_BYTES: Final = 64 * MIB  # a snapshot is taken when the log has grown by this much
SNAPSHOT_LOG_ENTRIES: Final = 50_000  # or by this many entries, so that opening replays no more
WAL_COMMAND_BYTES_MAX: Final = 128 * MIB  # above any command that the bounds on batches allow
WAL_BATCH_BYTES_MAX: Final = ENCODED_BYTES_MAX + KIB  # a stored batch and its header
WAL_CHECK_BYTES: Final = 1 * MIB  # recovery reads batches and tails in such pieces
SEGMENT_BYTES: Final = 32 * MIB  # of messages in a segment; it is encoded in memory
SEGMENT_GROUP_BYTES: Final = 1 * MIB  # a row group, which is what one old message costs to read
SEGMENT_GROUP_ROWS: Final = 32_768  # or this many rows
SEGMENT_NAME_CHARS_MAX: Final = 120  # of the topic in a file's name, which may have 255
SEGMENTS_SMALL_MAX: Final = 8  # small segments of a partition; more are rewritten as one
SEALED_RANGES_MAX: Final = 100  # of offsets that a segment is worth being read as a file for
SEGMENT_FILES_OPEN_MAX: Final = 64  # kept open for readers; more are opened as needed
SEAL_STEP_BYTES: Final = 128 * KIB  # written and synced at once, with a rest before the next
SEAL_BYTES_MAX: Final = 256 * MIB  # of old segments rewritten by one snapshot
SEAL_FILES_MAX: Final = 64  # of them, as each is open meanwhile
SEAL_PIECES_MAX: Final = 256  # of small sends that are put together without a rest
SEAL_WORK_SECONDS_MIN: Final = 0.000_3  # before a rest, which would cost as much as less work
SEAL_REST_FACTOR: Final = 8  # a rest is so many times as long as the work before it
SEAL_REST_SECONDS_MAX: Final = 0.1  # but no longer than this
SEAL_CACHE_BYTES_MAX: Final = 16 * MIB  # decoded batches kept while they are sealed
WAL_POINT_BYTES: Final = 1 * MIB  # the place of an entry is remembered once in so much of the log
WAL_RECENT_BYTES_MAX: Final = 64 * MIB  # of entries in memory, for peers that are nearly in step
WAL_BEHIND_BYTES_MAX: Final = 512 * MIB  # of the log kept for peers that are behind a snapshot;
# one that is further behind gets the snapshot
IDENTITY_BYTES_MAX: Final = 64 * KIB  # of the file with the names and addresses of all peers
WAL_FILES_OPEN_MAX: Final = 64  # old files kept open for readers; more are opened as needed

# -- compaction ------------------------------------------------------------------------------------
COMPACT_KEYS_MAX: Final = 100_000  # keys one reading remembers; with more it reads several times
COMPACT_CACHE_BYTES_MAX: Final = 64 * MIB  # decoded batches kept while a topic is read
COMPACT_PAGE_MESSAGES: Final = 2_000  # one step of a pass; others are served between two
COMPACT_PICKS_MAX: Final = 10_000  # about as many messages are dropped by one entry
COMPACT_GROWTH_PERCENT: Final = 50  # a topic that has grown by this much is worth another pass
COMPACT_GROWTH_MIN: Final = 1_000  # messages; if it has also grown by this many
COMPACT_AGAIN_SECONDS: Final = 3_600  # later, if groups that were behind kept it from dropping all
TOMBSTONE_KEEP_SECONDS: Final = 86_400  # so that everybody who reads once a day sees it

# -- access ----------------------------------------------------------------------------------------
ACCESS_FILE_BYTES_MAX: Final = 1 * MIB  # it is read again, whole, whenever it changes
ACCESS_CHECK_SECONDS: Final = 1  # how late a change of it, or of a certificate, may be noticed
PRINCIPALS_MAX: Final = 1_000
RULES_MAX: Final = 100  # of a principal: each request looks at all of them
CREDENTIALS_MAX: Final = 16  # of a principal, tokens and keys each: more than any rotation needs
AUTHORIZATION_BYTES_MAX: Final = 4 * KIB  # of that header; a signature has some hundred
CLOCK_SKEW_SECONDS_MAX: Final = 15 * 60  # between a signature's time and ours, as AWS has it
SIGNING_KEYS_CACHED: Final = 1_024  # derived keys: one for each key, day and region
SIGNING_MOMENTS_CACHED: Final = 64  # times of signatures, which are whole seconds
SIGNING_TERMS_CACHED: Final = 512  # Authorization headers but for the signature: 2 MiB at most
RIGHTS_KNOWN_MAX: Final = 1_000  # of one connection, that need not be looked up again
REFUSALS_LOG_SECONDS: Final = 10  # refused credentials are counted and logged once in so long

# -- the SQS door ----------------------------------------------------------------------------------
# What AWS refuses past, and so do we unless the configuration says otherwise:
SQS_MESSAGE_BYTES_MAX: Final = 1 * MIB  # a message with its attributes, and a batch of them
SQS_DELAY_SECONDS_MAX: Final = 900
SQS_VISIBILITY_SECONDS_MAX: Final = 43_200
SQS_RETENTION_SECONDS_MAX: Final = 1_209_600
SQS_WAIT_SECONDS_MAX: Final = 20
SQS_RECEIVE_MESSAGES_MAX: Final = 10
SQS_BATCH_ENTRIES_MAX: Final = 10
SQS_IN_FLIGHT_MAX: Final = 120_000  # messages of a queue that were received and not deleted
SQS_TAGS_MAX: Final = 50  # of a queue
SQS_ACTIONS_MAX: Final = 7  # of one permission
SQS_PAGE_MAX: Final = 1_000  # queues listed at a time
SQS_MOVES_SHOWN_MAX: Final = 10  # tasks listed at a time
# What is ours:
SQS_REQUEST_BYTES_MAX: Final = 8 * MIB  # a batch, with all that JSON, forms and base64 add to it
SQS_FORM_FIELDS_MAX: Final = 1_000  # ten messages with ten attributes have 450
SQS_FORM_DEPTH_MAX: Final = 8  # dots in a field's name
SQS_INSTANT_SECONDS: Final = 30  # of a lease that is ended as soon as it is given
SQS_ROOM_MS: Final = 200  # between two looks whether fewer are in flight, for those who wait for it
SQS_REMEMBERED_MAX: Final = 100_000  # messages whose first receive is remembered, queues deleted, …
SQS_QUEUES_MAX: Final = 1_000  # queues whose attributes are at hand; others are read again
SQS_ATTEMPTS_MAX: Final = 1_000  # receives whose answer can be had again by their attempt id
SQS_ATTEMPTS_BYTES_MAX: Final = 16 * MIB  # of these answers; the largest that AWS gives has 10 MiB
SQS_MOVES_MAX: Final = 1_000  # tasks that move messages, remembered after their end

# -- Spark -----------------------------------------------------------------------------------------
JAVA_ANSWER_SECONDS: Final = 30.0  # in which a Java says its version
PYTHON_ANSWER_SECONDS: Final = 30.0  # in which a worker's Python says whether it has Quiver
SPARK_SPLIT_BYTES: Final = 32 * MIB  # of messages that one task reads: as many as a segment has
SPARK_SHARE_BYTES: Final = 1 * MIB  # that a task should have at least: to start it takes a while
SPARK_SPLITS_MAX: Final = 10_000  # tasks of one read; of more each has more to do
SPARK_QUEUES_MAX: Final = 8  # that one Python worker keeps open
SPARK_IDLE_SECONDS: Final = 0.05  # a stream with nothing to read waits so long before it asks again
SPARK_STAGE_BYTES: Final = 16 * MIB  # of rows that one request of a task stages
SPARK_OWN_SECONDS: Final = 30.0  # in which a driver gets hold of a directory that it writes to
SPARK_FULL_SECONDS: Final = 600.0  # for which a driver waits for room in a topic that it writes to
SPARK_LEASE_ROWS: Final = 10_000  # of a batch in queue mode, unless the query says otherwise
SPARK_POLL_SECONDS: Final = 0.5  # for which a query waits for messages, or for room, at a time

# -- pipelines on Spark ----------------------------------------------------------------------------
PIPELINE_BATCH_ROWS: Final = 100_000  # of a topic, taken by one batch: more makes it wait longer
PIPELINE_BATCH_BYTES: Final = 256 * MIB  # of a topic, taken by one batch
PIPELINE_POLL_SECONDS: Final = 0.2  # how late a batch's figures, or a wish to stop, may be noticed
PIPELINE_STOP_SECONDS_MAX: Final = 60.0  # a batch that is being loaded is waited for, then given up
PIPELINE_PATIENCE_SECONDS: Final = 600.0  # a full topic, or a node that is away, is waited for
PIPELINE_FULL_SECONDS: Final = 20.0  # of these in one attempt, so that a wish to stop is noticed
PIPELINE_PAUSE_SECONDS: Final = 1.0  # between two attempts to load a batch there
PIPELINE_DRIVERS_MAX: Final = 4  # that write one batch at once; what more have left is of dead ones
PIPELINE_BATCHES_KEPT: Final = 100  # whose figures nobody has asked for yet; Spark keeps as many
DEAD_LETTER_HEADERS_MAX: Final = 56  # of a bad row's own; the rest has room for what went wrong
DEAD_LETTER_HEADERS_BYTES_MAX: Final = HEADERS_BYTES_MAX - 64 * KIB  # or they are left out

# -- consensus -------------------------------------------------------------------------------------
ELECTION_TICKS: Final = 10  # without a leader, and up to twice as many: then a peer campaigns
HEARTBEAT_TICKS: Final = 1  # between two signs of life of a leader
APPEND_BYTES_MAX: Final = 1 * MIB  # of entries in one message; a larger entry goes alone
WINDOW_BYTES_MAX: Final = 64 * MIB  # of entries on their way to one peer
WINDOW_MESSAGES_MAX: Final = 256  # on their way to one peer
UNCOMMITTED_BYTES_MAX: Final = 256 * MIB  # of a leader's entries; past it nothing new comes in
APPEND_ENTRIES_MAX: Final = 10_000  # in one message: small ones, which bytes alone do not bound
SAVES_MAX: Final = 10_000  # that wait for a peer's disk; past it the peer is deaf and mute
PEERS_MAX: Final = 32  # voters and learners of one log; a quorum of more would be slow
READS_MAX: Final = 10_000  # readers that wait for a confirmation of who leads
