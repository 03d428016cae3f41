"""Admission: whether a message may enter the log (001 section 8). Pure: no clock, no files, no threads.

The hub, ``veen hub explain`` and the tests run these functions, as far as they apply, in this order; the
fuzzer runs what parses (rows 3 to 7). The first row that fails decides.

    row   what                                   detail            function
    1     size of the request                    SIZE_PREFILTER    prefilter.sized
    2     proof of work                          PREFILTER_REJECT  prefilter.check_work
    3     canonical CBOR of the right shape      CBOR_INVALID      stateless.read_request, read_msg
    4     lengths and limits                     FIELD_SIZE        stateless.read_request, read_msg
    5     ver                                    VERSION           stateless.read_request, read_msg
    6     profile is one of the hub's            PROFILE           stateless.check_structure
    6a    padding                                CT_PADDING        stateless.check_structure
    7     ct_hash                                CT_HASH           stateless.check_structure
    8     att_root                               ATT_ROOT          none: for holders of the plaintext (C-10)
    9     the client's signature                 SIG_INVALID       stateless.authenticate
    10    a token, required or not known here    CAP_MISSING       stateful.admit
    11    issuer of the token                    CAP_INVALID       authority.Authority.verify_issuer
    12    subject and scope of the token         AUTH_REF          stateful.admit, label_scope.Scopes.resolve
    12a   the hub is the primary                 NOT_PRIMARY       stateful.admit
    12b   client or token is revoked             REVOKED           authority.Authority.verify_not_revoked
    12c   age and messages of the client         CLIENT_LIFETIME   stateful.admit
    13    expiry of the token                    CAP_TTL           stateful.admit
    14    rate of the token                      CAP_RATE          stateful.admit
    15    prev_ack                               PREV_ACK          stateful.admit
    16    client_seq was used before             DUPLICATE         stateful.admit
    17    client_seq                             CLIENT_SEQ        stateful.admit
    18    epoch of the label                     EPOCH             stateful.admit

``prefilter`` looks at the request alone, ``stateless`` at the message alone (so messages are checked in
parallel, in other processes), ``stateful`` at the message, the log before it, and the time assigned to it.
``stages`` has what a message is after each of them.
"""
