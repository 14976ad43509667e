"""The secure sum: the coordinator learns the sum of the parties' arrays, and nothing else about any of them.

The protocol. M parties with names a < b < ... hold float arrays of one shape; everybody knows the run's name.

 1. Keys.    Each party makes an X25519 pair for the masks of the run, which is no other key of it, and sends the
             public half, **signed with its certificate**.
             Whoever uses this package verifies those signatures *before* it makes a `Roster`: the coordinator
             relays the keys, and with keys of its own in their place it would read every mask. A party also
             checks that the roster holds the parties it agreed to train with. Every masked message names the
             roster it was made with, so parties with different rosters are found by name.
 2. Secrets. Parties a and b agree on  s_ab = HKDF(X25519(a, b), run, roster, a, b).          `masks.Masker`
 3. Noise.   With c possible colluders and d declared drops each party draws
             n_k ~ N(0, sigma^2 C^2 / (M - c - d)) for every cell.                            `noise.noise_share`
 4. Grid.    e_k = trunc(x_k / g) + round(n_k / g), whole numbers modulo 2^64; g is a power of two, chosen so
             that the sum cannot wrap.                                                        `fixed_point.Grid`
 5. Masks.   Per address (round, part, array) a fresh key is expanded from s_ab, and ChaCha20 makes a mask
             m_ab of it. Party k sends  y_k = e_k + sum_{b > k} m_kb - sum_{a < k} m_ak  mod 2^64.
 6. Sum.     Only when every party of the roster is there:  sum_k y_k = sum_k e_k, as each mask stands in it once
             with plus and once with minus. Times g it is the sum.                            `total.open_total`

What each side sees. To whoever lacks the secrets of one honest pair, y_k looks uniformly random: any set of
parties smaller than all the others of k, together with the coordinator, learns the sum of the remaining ones.
Against M - 1 colluders no sum can hide anything; there only the noise share of k itself is left.

One address, one message. The masks of an address hide one message. `Masker` refuses a second, different one, also
after a restart if it is given back what it had `spent`; the same message again is the same bytes, so it may be sent
as often as wanted. The noise must then be the same too. Between organisations a party stores the whole message
before it leaves, and the organisation's table ledger (`deploy/table_ledger.py`), which is outside of that store, knows
the number and digest of the last one; the address (`Address.rows`) has the digest of all that was asked so far. So an
old copy of a store masks nothing twice.

A missing party. Nothing can be opened without it, so nothing is lost by waiting: `total.missing` names it, and the
same round completes when it is back. Going on without it takes a new roster (`Roster.without`) and a *new*
round with fresh noise, which the ledger counts. The same round is never asked of two rosters: the difference
of the two sums would be the missing party's array. A roster refuses to lose more parties than were declared,
because each takes its noise share away; up to that number a coordinator that only claims a loss gains nothing beyond
what the noise covers. Seeds are not shared out to recover masks (Bonawitz et al. 2017): that would need a second mask
and two more messages for each round, and VIMADMM-J has no use for a partial sum.

Not covered: a party that sends wrong numbers (the sum is wrong, and nobody can tell whose fault it is), what the
sum itself says (that is what the noise is for), sizes and times of messages.
"""
