// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// FuzzAnnotate holds the hand-written annotation against the one that goes through maps and encoding/json.
func FuzzAnnotate(f *testing.F) {
	f.Add("0-3", "8:0", "v1", int64(512), uint64(3), true)
	f.Add("\"\\\n\x00\x7f\u2028é\xff<&>", "A=\t", "\b\f", int64(-1), uint64(0), false)
	f.Add("", "", "", int64(1), uint64(1), false)
	f.Fuzz(func(t *testing.T, text, key, version string, n int64, gen uint64, idle bool) {
		v := &node.View{Generation: gen}
		v.Kernel.Cgroup, v.Runtime.Fields.Unified = node.CgroupV2, true
		c := &workload.Container{}
		c.Base.Shares, c.Base.CPUs = unit.Some(n), key
		c.Base.Unified = map[string]string{"memory.high": text, "memory.min": key}
		var p plan.Plan
		add := func(k plan.Knob, key string, value plan.Value) {
			p = append(p, plan.Setting{Target: plan.Target{Level: plan.LevelContainer}, Knob: k, Key: key, Value: value, Owner: protocol.FeatureBurst})
		}
		add(plan.CPUShares, "", plan.Int(n/2+7))
		if idle {
			add(plan.CPUIdle, "", plan.Int(1))
		}
		add(plan.CPUSetCPUs, "", plan.Text(text))
		add(plan.MemoryHigh, "", plan.Int(n))
		add(plan.IOReadBPS, key, plan.Int(n))
		add(plan.IOReadBPS, text, plan.Int(n))
		add(plan.Env, text, plan.Text("secret"))
		add(plan.CPUQuota, "", plan.Int(n))
		for i := range len(p) + 1 {
			want := ""
			if m := Mark(v, p[:i], c, version); m != nil {
				want = protocol.FormatApplied(*m)
			}
			if got := annotate(v, p[:i], c, version); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		if strings.Contains(annotate(v, p, c, version), "secret ") && !strings.Contains(text+key+version, "secret") {
			t.Error("a variable's value stands in the annotation")
		}
	})
}
