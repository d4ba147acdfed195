// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// quotaMoves: of the quotas of the tier that koordlet has written, by its ledger, none is beside the one before by less than 1 % of the node,
// and none above it by more than 10 %, or within the same tick as the growth before (A4 of the documents). It is for a strategy without a
// floor, to which a way up may end in a smaller step, and for a tier that has a quota.
func (r *rig) quotaMoves() {
	r.t.Helper()
	records, _, err := ledger.ReadAll(r.run)
	if err != nil {
		r.t.Fatal(err)
	}
	whole := 100_000 * runtime.NumCPU() // µs of a period
	band, step := whole/100, whole/10
	var (
		was    int
		grown  time.Time
		n, few int
		moves  []string
	)
	for i := range records {
		rec := &records[i]
		if rec.Target.Level != plan.LevelQoS || rec.Knob != plan.CPUQuota.String() || rec.Via != journal.ViaDirect || len(rec.Written) == 0 || rec.Err != "" {
			continue
		}
		now, err := strconv.Atoi(rec.Want)
		if err != nil {
			r.t.Fatalf("the ledger has %q for a quota", rec.Want)
		}
		if was > 0 && now > 0 {
			n++
			moves = append(moves, strconv.Itoa(now))
			if max(now-was, was-now) < band {
				few++
			}
			if now > was && (now-was > step+1 || rec.Time.Sub(grown) < 800*time.Millisecond) {
				r.t.Errorf("the quota of the tier grows from %d to %d, %s after it grew before: %s", was, now, rec.Time.Sub(grown).Round(time.Millisecond), rec.Reason)
			}
		}
		if now > was {
			grown = rec.Time
		}
		was = now
	}
	r.t.Logf("%d moves of the tier's quota, %d of them by less than 1 %% of the node: %s", n, few, strings.Join(moves, " "))
	if n < 4 || few > 0 {
		r.t.Errorf("%d moves of the tier's quota, want 4 at least; %d of them by less than 1 %% of the node, want none", n, few)
	}
}
