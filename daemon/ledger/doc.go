// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package ledger keeps journal records on the run directory's tmpfs (D7): one append-only file of JSON lines per
// writing process, RunDir/ledger/WRITER.jsonl, which a compaction rewrites.
//
// Input is records; output is the same records read back, those of them that matter, merged over all writers, and an index of originals and latest
// values. It may import model, daemon/atomicfile, daemon/boottime, the standard library and golang.org/x/sys; it must not
// import kernel or policy.
//
// What survives: a process may be killed at any byte. A line that was cut is skipped by readers and counted; the next
// life of the writer starts a new line. There is no fsync, because cgroups and resctrl groups do not outlive a reboot
// either.
//
// Thread safety: Append, Look, Close and Stats may be called from any goroutine; Run from one at a time.
package ledger
