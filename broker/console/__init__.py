"""The console: an HTTP API of `aerobee` commands, and pages over it. With `consolePort: 0` nothing
of it is loaded, and before the first request only its listener is there.

    browser, script ─► web.py ─► console.py ─► commands.py ─► a command of aerobee.cli, in a thread
                       who?      may it?       words, values    │
                                    │                           ▼
                                 snapshot.py                 inside.py: a connection of remoting to
                                 lists, on a tick            this broker, from the viewer's address

The interface that the API and the pages share, and pages use nothing else:

`Console` (console.py)
    `await console.call(viewer, "group.reset", {"name": "g", "topic": "t", "to": "first"})`
        does one operation as the viewer, and returns an `Outcome`. Operations are the commands of
        `aerobee`: what `aerobee group reset --json` prints is `outcome.value`, what it says on
        stderr is in `outcome.notes`. Arguments are the command's, without dashes and with
        underscores, as texts, numbers, booleans or lists of them.
        A change that would ask on a terminal asks here: `outcome.asks` is the consequence in
        words, and nothing has been done. The same call with `confirmed=True` does it.
        Raises `Failure`: `status` of HTTP, `kind` for programs, `text` for people.
    `await console.snapshot()` is the newest `Snapshot`: made at most once in TICK_S, only while
        somebody looks, and the same for everybody.
    `console.operations` is the table (operations.py): name, method, path, whether it changes
        anything. `console.readable` says in words why nobody may change anything; empty: they may.

`Viewer` (viewers.py): who looks. Pages find it in `request.state.viewer`.
    `name` is empty of a broker without users, `csrf` is the token for forms, `may(kind, resource,
    action)` asks the policies, `may_write` and `may_read_bodies` are what they say.

`Snapshot` (snapshot.py): `at_ms`, `took_ms`; `topics`, `groups`, `clients`, `dead_letters`,
    `findings`, `overview`; each `…_of(viewer)` leaves out what the viewer may not see. A value
    that is not known is None, never 0.

`arranged(rows, query)` (lists.py): filter, stable sort and page of any list, by the same names in
    the API and in pages: `filter`, `sort` (a leading `-`: descending), `offset`, `limit`.

| page | where it comes from |
|---|---|
| overview | `snapshot().overview`, `.findings`; `cluster.info` |
| topics, topic | `snapshot().topics`; `topic.describe`; `topic.create`, `.alter`, `.delete` |
| groups, group | `snapshot().groups`; `group.doctor`, `.lag`, `.describe`, `.pause` … |
| search, message | `message.find`, `message.get`; `why` |
| dead letters | `dlq.list`; `dlq.redrive`, `.drop`, `.edit` |
| clients | `snapshot().clients`; `connections.close` |
| resets | `group.reset` with `dry_run`, then without |
| settings, audit | `settings`; `broker.config.set`; `audit` |
| store, replication | `store`; `ha.status`, `ha.switch`, `ha.promote` |
| users | `users.list`, `.show`, `.create` …; `acl.list`, `.grant`, `.revoke` |

Pages are `console/pages/`: `routes(console)` there returns routes of Starlette that `web.py` mounts
below `/`. `POST /login`, `POST /logout`, `/api/v1/…` and the headers of every answer are
`web.py`'s; a form carries `csrf` in a field of that name, or in the header `X-CSRF-Token`.
"""
