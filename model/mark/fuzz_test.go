// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package mark_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
)

func FuzzPlanOf(f *testing.F) {
	f.Add("cpu.shares", "512 batch")
	f.Add("io.read_bps[8:0]", "1 blkio")
	f.Add("env[X]", "set devices")
	f.Add("cpu.shares[", "x  batch")
	f.Add("cpu.shares", "512 hook:x")
	f.Add("cpu.shares", "512 hook:")
	f.Add("cpu.shares", "512 nobody")
	f.Fuzz(func(t *testing.T, knob, value string) {
		target := plan.Target{Level: plan.LevelContainer, Container: "c"}
		for _, s := range mark.PlanOf(&protocol.Applied{Set: map[string]string{knob: value}}, target) {
			if mark.SpecOnly(s.Knob) || s.Target != target || !strings.HasPrefix(knob, s.Knob.String()) || !strings.HasSuffix(value, " "+s.By()) {
				t.Fatalf("%q=%q is read as %s", knob, value, s.String())
			}
		}
	})
}
