// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

func TestKnobTable(t *testing.T) {
	t.Parallel()
	seen := map[string]Knob{}
	for k := KnobNone + 1; k < NumKnobs; k++ {
		i := k.Info()
		if i.Name == "" || i.Unit == "" {
			t.Errorf("knob %d has no name or unit", k)
		}
		if other, dup := seen[i.Name]; dup {
			t.Errorf("%s names knob %d and %d", i.Name, other, k)
		}
		seen[i.Name] = k
		if got, ok := ParseKnob(i.Name); !ok || got != k {
			t.Errorf("%s reads back as %s", k, got)
		}
	}
	if NumKnobs > 64 {
		t.Errorf("%d knobs do not fit the Knobs set", NumKnobs)
	}
	if _, ok := ParseKnob("none"); ok {
		t.Error("none is not a knob one can name")
	}
}

func TestMergeNamesBothOwners(t *testing.T) {
	t.Parallel()
	target := Target{Level: LevelContainer, Cgroup: "/kubepods/podA/c", Name: "default/web/app"}
	a := Setting{Target: target, Knob: CPUQuota, Value: Int(100000), Owner: protocol.FeatureBatch, Reason: "one CPU"}
	b := a
	b.Owner, b.Value = protocol.FeatureNormalization, Int(80000)
	got, err := Merge(Plan{a}, Plan{b})
	if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "batch wants 100000") || !strings.Contains(err.Error(), "cpu-normalization wants 80000") {
		t.Errorf("got error %v", err)
	}
	if len(got) != 1 || got[0].Owner != protocol.FeatureBatch {
		t.Errorf("the first must stay: %s", got)
	}
	if got, err := Merge(Plan{a}, Plan{a}); err != nil || len(got) != 1 {
		t.Errorf("the same twice: %v, %s", err, got)
	}
	pod := a
	pod.Target.Level = LevelPod
	if got, err := Merge(Plan{a}, Plan{pod}); err != nil || len(got) != 2 {
		t.Errorf("two targets: %v, %s", err, got)
	}
}

// Neither NRI nor CRI can say a memory limit of 0, or empty a cpuset.
func TestInResources(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		s    Setting
		want bool
	}{
		"shares":        {Setting{Knob: CPUShares, Value: Int(2)}, true},
		"quota":         {Setting{Knob: CPUQuota, Value: Int(-1)}, true},
		"period":        {Setting{Knob: CPUPeriod, Value: Int(100000)}, true},
		"memory":        {Setting{Knob: MemoryLimit, Value: Int(-1)}, true},
		"no memory":     {Setting{Knob: MemoryLimit, Value: Int(0)}, false},
		"CPUs":          {Setting{Knob: CPUSetCPUs, Value: Text("0-3")}, true},
		"no CPUs":       {Setting{Knob: CPUSetCPUs, Value: Text("")}, false},
		"no nodes":      {Setting{Knob: CPUSetMems, Value: Text("")}, false},
		"unified":       {Setting{Knob: MemoryHigh, Value: Int(1)}, false},
		"no OOM score":  {Setting{Knob: OOMScoreAdj, Value: Int(1)}, false},
		"resctrl group": {Setting{Knob: RDTClass, Value: Text("BE")}, false},
	} {
		if got := tc.s.InResources(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	c := Target{Level: LevelContainer, Name: "default/web/app"}
	p := Plan{
		{Target: c, Knob: MemoryHigh, Value: Int(4096), Owner: protocol.FeatureMemory, Reason: "limit × 100 %"},
		{Target: Target{Level: LevelPod, Name: "default/web"}, Knob: CPUSetCPUs, Value: Text("0-3"), Owner: protocol.FeatureCPUSet, Reason: "share pool", Observe: true},
		{Target: c, Knob: IOReadBPS, Key: "8:0", Value: Int(1 << 20), Owner: protocol.FeatureBlkIO, Reason: "annotation"},
	}
	want := "pod default/web cpuset.cpus = 0-3 (cpuset: share pool) observe-only\n" +
		"container default/web/app memory.high = 4096 (memory-qos: limit × 100 %)\n" +
		"container default/web/app io.read_bps[8:0] = 1048576 (blkio: annotation)\n"
	if got := p.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
