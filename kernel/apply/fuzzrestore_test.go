// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"encoding/json"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// FuzzRestore: a ledger of any content makes restore neither panic nor write outside the tree's rules.
func FuzzRestore(f *testing.F) {
	m := newMachine(f, "6.12")
	m.Resctrl(f, true, true)
	m.start(f, ctr, 10)
	for _, r := range []journal.Record{
		{Via: journal.ViaDirect, Knob: "memory.high", Files: []string{"/a"}, Original: []string{"max"}, Written: []string{"max"}},
		{Via: journal.ViaRestore, Knob: "memory.high"},
		{Via: journal.ViaDirect, Knob: "memory.high", Files: []string{"/a"}, Err: "no"},
		{Via: journal.ViaRuntime, Knob: "cpu.shares", Want: "1024", Base: "2"},
		{Via: journal.ViaDirect, Knob: "oom_score_adj", Want: "0", Written: []string{"0"}, Original: []string{"x"}},
		{Via: journal.ViaDirect, Knob: "rdt.schemata", Key: "L3", Written: []string{"0=fffff"}, Original: []string{""}},
		{Via: journal.ViaDirect, Knob: "rdt.schemata", Key: "L3", Written: []string{"0=fffff"}, Original: []string{"L3:0=f"}, Theirs: true},
		{Via: journal.ViaDirect, Knob: "sched.policy", Written: []string{"5"}, Original: []string{"0"}, Theirs: true},
	} {
		r.Boot, r.Target = kerneltest.BootID, targetOf(ctr)
		b, err := json.Marshal([]journal.Record{r, r})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, ledger []byte) {
		var records []journal.Record
		if json.Unmarshal(ledger, &records) != nil {
			return
		}
		for i := range records {
			records[i].Boot, records[i].Inode = kerneltest.BootID, 0
			if records[i].Target.Level > plan.LevelContainer {
				records[i].Target.Level = plan.LevelContainer
			}
		}
		for _, s := range m.Restore(t.Context(), records, true) {
			if s.Action == "" {
				t.Fatalf("no action: %+v", s)
			}
		}
	})
}
