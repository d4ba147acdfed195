// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package workload

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// The label's class holds; without one it is the default of the Kubernetes class (facts of Koordinator's node agent).
func TestClass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		label protocol.QoS
		kube  protocol.KubeQoS
		want  protocol.QoS
	}{
		"label":                 {protocol.QoSLSE, protocol.KubeGuaranteed, protocol.QoSLSE},
		"label against default": {protocol.QoSBE, protocol.KubeGuaranteed, protocol.QoSBE},
		"label, class unknown":  {protocol.QoSLS, protocol.KubeQoS(0), protocol.QoSLS},
		"guaranteed":            {protocol.QoSNone, protocol.KubeGuaranteed, protocol.QoSLSR},
		"burstable":             {protocol.QoSNone, protocol.KubeBurstable, protocol.QoSLS},
		"best effort":           {protocol.QoSNone, protocol.KubeBestEffort, protocol.QoSBE},
		"nothing known":         {protocol.QoSNone, protocol.KubeQoS(0), protocol.QoSNone},
	} {
		p := Pod{KubeQoS: c.kube, Ask: protocol.Ask{QoS: c.label}}
		if got := p.Class(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Targets name a cgroup and whose it is: the ledger is read by these names.
func TestTargets(t *testing.T) {
	t.Parallel()
	p := &Pod{ID: "sandbox", UID: "uid-1", Namespace: "default", Name: "web", Cgroup: "/kubepods/poduid-1", QoSCgroup: "/kubepods"}
	c := &Container{ID: "0123", Name: "app", Cgroup: "/kubepods/poduid-1/0123"}
	for name, pair := range map[string][2]plan.Target{
		"pod":       {p.Target(), {Level: plan.LevelPod, Cgroup: "/kubepods/poduid-1", Pod: "uid-1", Name: "default/web"}},
		"container": {c.Target(p), {Level: plan.LevelContainer, Cgroup: "/kubepods/poduid-1/0123", Pod: "uid-1", Container: "0123", Name: "default/web/app"}},
	} {
		if diff := cmp.Diff(pair[1], pair[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if p.FullName() != "default/web" {
		t.Errorf("full name %q", p.FullName())
	}
}

// Quota over period in milli-CPUs, the period 100 ms where none is stated; what is absent or unlimited is 0.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r   Resources
		cpu unit.MilliCPU
		mem unit.Bytes
	}{
		"nothing asked":    {Resources{}, 0, 0},
		"unlimited":        {Resources{Quota: unit.Some(-1), Period: unit.Some(100000), MemoryLimit: unit.Some(-1)}, 0, 0},
		"half a CPU":       {Resources{Quota: unit.Some(50000), Period: unit.Some(100000), MemoryLimit: unit.Some(1 << 30)}, 500, 1 << 30},
		"default period":   {Resources{Quota: unit.Some(250000)}, 2500, 0},
		"period of 10 ms":  {Resources{Quota: unit.Some(20000), Period: unit.Some(10000)}, 2000, 0},
		"shares are none":  {Resources{Shares: unit.Some(1024)}, 0, 0},
		"period of 0":      {Resources{Quota: unit.Some(50000), Period: unit.Some(0)}, 0, 0},
		"memory of a byte": {Resources{MemoryLimit: unit.Some(1)}, 0, 1},
	} {
		if cpu, mem := c.r.CPULimit(), c.r.MemLimit(); cpu != c.cpu || mem != c.mem {
			t.Errorf("%s: %d milli-CPUs and %d bytes, want %d and %d", name, cpu, mem, c.cpu, c.mem)
		}
	}
}

// A sandbox's directory tells the pod's class, the class's directory and, where nobody else does, its UID.
func TestPlace(t *testing.T) {
	t.Parallel()
	bad := errors.New("not a cgroup path")
	for name, c := range map[string]struct {
		pod  Pod
		dir  string
		err  error
		want Pod
	}{
		"by systemd": {
			pod: Pod{UID: "u-1"}, dir: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice",
			want: Pod{
				UID: "u-1", KubeQoS: protocol.KubeBestEffort, QoSCgroup: "/kubepods.slice/kubepods-besteffort.slice",
				Cgroup: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice",
			},
		},
		"without a UID":    {dir: "/kubepods/poda", want: Pod{UID: "a", KubeQoS: protocol.KubeGuaranteed, Cgroup: "/kubepods/poda", QoSCgroup: "/kubepods"}},
		"the UID stands":   {pod: Pod{UID: "b"}, dir: "/kubepods/poda", want: Pod{UID: "b", KubeQoS: protocol.KubeGuaranteed, Cgroup: "/kubepods/poda", QoSCgroup: "/kubepods"}},
		"no kubelet's pod": {pod: Pod{UID: "u"}, dir: "/machine/x", want: Pod{UID: "u", Cgroup: "/machine/x"}},
		"not placed": {
			pod: Pod{UID: "u", Problems: []protocol.Problem{{Key: "first"}}}, err: bad,
			want: Pod{UID: "u", Problems: []protocol.Problem{{Key: "first"}, {Key: "cgroup-parent", Reason: bad.Error()}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.pod.Place(c.dir, c.err)
			if diff := cmp.Diff(c.want, c.pod); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The overhead of the runtime class is added where there is a limit, and makes none where there is not.
func TestAddOverhead(t *testing.T) {
	t.Parallel()
	sum := Resources{Shares: unit.Some(1024), Quota: unit.Some(-1), Period: unit.Some(100000), CPUs: "0-3"}
	sum.AddOverhead(&Resources{
		Shares: unit.Some(100), Quota: unit.Some(20000), Period: unit.Some(50000), MemoryLimit: unit.Some(1 << 20), CPUs: "4",
	})
	want := Resources{Shares: unit.Some(1124), Quota: unit.Some(-1), Period: unit.Some(100000), CPUs: "0-3"}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	limited := Resources{Quota: unit.Some(100000), MemoryLimit: unit.Some(1 << 30)}
	limited.AddOverhead(&Resources{MemoryLimit: unit.Some(1 << 20)})
	if diff := cmp.Diff(Resources{Quota: unit.Some(100000), MemoryLimit: unit.Some(1<<30 + 1<<20)}, limited); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Names do not keep the variables in memory, whose values may be secrets.
func TestEnvNames(t *testing.T) {
	t.Parallel()
	if got := EnvNames(nil); got != nil {
		t.Errorf("names of nothing: %q", got)
	}
	env := []string{"TOKEN=se=cret", "EMPTY=", "BARE"}
	got := EnvNames(env)
	if diff := cmp.Diff([]string{"TOKEN", "EMPTY", "BARE"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, name := range got {
		if unsafe.StringData(name) == unsafe.StringData(env[i]) {
			t.Errorf("%s lies in the variable", name)
		}
	}
}
