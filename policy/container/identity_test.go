// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"os"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

const m5 = "../../api/strategy/testdata/m05-nodeslo.yaml"

// TestIdentity is table G of the worked scenarios with the strategy M5: LSR 0, LS 2, BE -1.
func TestIdentity(t *testing.T) {
	t.Parallel()
	yes, two, minus, one := true, int64(2), int64(-1), int64(1)
	for name, tc := range map[string]struct {
		class   protocol.QoS
		kube    protocol.KubeQoS
		ask     *strategy.CPUQOS
		bvt     string // on a vendor kernel
		sched   string // on mainline 6.1
		disable bool
	}{
		"LSE":                         {class: protocol.QoSLSE, bvt: "0", sched: "-"},
		"LSR":                         {class: protocol.QoSLSR, bvt: "0", sched: "-"},
		"LS":                          {class: protocol.QoSLS, bvt: "2", sched: "-"},
		"BE":                          {class: protocol.QoSBE, bvt: "-1", sched: "5"},
		"SYSTEM is not enabled":       {class: protocol.QoSSystem, bvt: "-", sched: "-"},
		"Burstable without label":     {class: protocol.QoSNone, kube: protocol.KubeBurstable, bvt: "2", sched: "-"},
		"BestEffort without label":    {class: protocol.QoSNone, kube: protocol.KubeBestEffort, bvt: "-1", sched: "5"},
		"Guaranteed without label":    {class: protocol.QoSNone, kube: protocol.KubeGuaranteed, bvt: "0", sched: "-"},
		"annotation of an LS pod":     {class: protocol.QoSLS, ask: &strategy.CPUQOS{Enable: &yes, GroupIdentity: &minus}, bvt: "-1", sched: "5"},
		"annotation with idle":        {class: protocol.QoSLS, ask: &strategy.CPUQOS{Enable: &yes, SchedIdle: &one}, bvt: "0", sched: "5"},
		"annotation without enable":   {class: protocol.QoSLS, ask: &strategy.CPUQOS{GroupIdentity: &minus}, bvt: "0", sched: "-"},
		"annotation of a BE pod":      {class: protocol.QoSBE, ask: &strategy.CPUQOS{Enable: &yes, GroupIdentity: &two}, bvt: "-1", sched: "5"},
		"strategy enables no class":   {class: protocol.QoSBE, disable: true, bvt: "-", sched: "-"},
		"unknown class without label": {class: protocol.QoSNone, kube: protocol.KubeUnknown, bvt: "-", sched: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pt.Pod(tc.class)
			p.Ask.CPUQOS = tc.ask
			if tc.class == protocol.QoSNone {
				p.KubeQoS = tc.kube
			}
			for _, vendor := range []bool{false, true} {
				v := pt.View()
				if !tc.disable {
					file(t, v, m5)
				}
				w := want{"cpu.bvt": "-", "sched.policy": tc.sched, "cpu.idle": "-"}
				if vendor {
					pt.Vendor(v)
					w["cpu.bvt"] = tc.bvt
					if tc.ask == nil || tc.ask.SchedIdle == nil {
						w["sched.policy"] = "-"
					}
				}
				pl, _ := container.Decide(v, p, pt.Container(p))
				pt.Want(t, pl, w, false)
			}
		})
	}
}

// TestIdentityRaised is G4: LSR's value goes from 0 to 2. No class moves past another: on a vendor kernel BE alone is below the
// rest, on mainline nothing changes.
func TestIdentityRaised(t *testing.T) {
	t.Parallel()
	for class, c := range map[protocol.QoS]struct{ bvt, sched string }{
		protocol.QoSLSR: {"2", "-"}, protocol.QoSLS: {"2", "-"}, protocol.QoSBE: {"-1", "5"},
	} {
		for _, vendor := range []bool{false, true} {
			v, p := pt.View(), pt.Pod(class)
			file(t, v, m5)
			*v.Strategy.ResourceQOSStrategy.LSRClass.CPUQOS.GroupIdentity = 2
			w := want{"cpu.bvt": "-", "sched.policy": c.sched}
			if vendor {
				pt.Vendor(v)
				w = want{"cpu.bvt": c.bvt, "sched.policy": "-"}
			}
			pl, _ := container.Decide(v, p, pt.Container(p))
			pt.Want(t, pl, w, false)
		}
	}
}

func TestIdentityByKernel(t *testing.T) {
	t.Parallel()
	p := pt.Pod(protocol.QoSBE)
	for _, tc := range []struct {
		major, minor int
		sched, why   string
	}{{4, 19, "-", ""}, {5, 3, "-", ""}, {5, 4, "5", "nobody else"}, {6, 11, "5", "nobody else"}, {6, 12, "5", "wake-up placement only"}, {7, 2, "5", "wake-up placement only"}} {
		v := file(t, pt.View(), m5)
		v.Kernel.Major, v.Kernel.Minor = tc.major, tc.minor
		pl, _ := container.Decide(v, p, pt.Container(p))
		pt.Want(t, pl, want{"sched.policy": tc.sched}, false)
		if s := pl.Get(plan.SchedPolicy); s != nil && !strings.Contains(s.Reason, tc.why) {
			t.Errorf("%d.%d: reason %q, want %q", tc.major, tc.minor, s.Reason, tc.why)
		}
	}
}

func TestCoreSched(t *testing.T) {
	t.Parallel()
	const enabled = "resourceQOSStrategy: {policies: {cpuPolicy: coreSched}, lsClass: {cpuQOS: {enable: true, coreExpeller: true}}, beClass: {cpuQOS: {enable: true, schedIdle: 1}}}"
	for name, tc := range map[string]struct {
		class         protocol.QoS
		group, policy string
		yaml          string
		limits        bool
		want          string
		problems      int
	}{
		"nobody asks":            {class: protocol.QoSLS, limits: true, want: "-"},
		"label":                  {class: protocol.QoSLS, group: "tenant-a", limits: true, want: "default/tenant-a"},
		"exclusive":              {class: protocol.QoSLS, group: "tenant-a", policy: "exclusive", limits: true, want: "uid-1"},
		"policy none":            {class: protocol.QoSLS, group: "tenant-a", policy: "none", limits: true, want: "-"},
		"SYSTEM":                 {class: protocol.QoSSystem, group: "tenant-a", limits: true, want: "-"},
		"limit":                  {class: protocol.QoSLS, group: "tenant-a", want: "-", problems: 1},
		"strategy with expeller": {class: protocol.QoSLS, yaml: enabled, limits: true, want: "default-expeller"},
		"strategy with label":    {class: protocol.QoSLS, group: "a", yaml: enabled, limits: true, want: "default/a-expeller"},
		"strategy BE":            {class: protocol.QoSBE, yaml: enabled, limits: true, want: "default"},
		"strategy not for LSR":   {class: protocol.QoSLSR, yaml: enabled, limits: true, want: "-"},
		"strategy under limit":   {class: protocol.QoSLS, yaml: enabled, want: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), tc.yaml), pt.Pod(tc.class)
			v.Limits.CoreSched = tc.limits
			p.Ask.CoreSchedGroup, p.Ask.CoreSchedPolicy = tc.group, tc.policy
			pl, problems := container.Decide(v, p, pt.Container(p))
			pt.Want(t, pl, want{"core_sched.cookie": tc.want}, false)
			if len(problems) != tc.problems {
				t.Errorf("problems %v, want %d", problems, tc.problems)
			}
		})
	}
}

func TestOOMScore(t *testing.T) {
	t.Parallel()
	low, high := -900, 300
	for name, tc := range map[string]struct {
		pod   *int
		spec  map[string]int
		limit func(*node.Limits)
		want  string
	}{
		"documented example": {pod: &low, want: "-500"},
		"pod":                {pod: &high, want: "300"},
		"container wins":     {pod: &low, spec: map[string]int{"app": 100}, want: "100"},
		"other container":    {spec: map[string]int{"other": 100}, want: "-"},
		"upper limit":        {pod: &high, limit: func(l *node.Limits) { l.OOMScoreAdjMax = 200 }, want: "200"},
		"equal to kubelet's": {spec: map[string]int{"app": 985}, want: "-"},
		"nobody asks":        {want: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.View(), pt.Pod(protocol.QoSLS)
			if tc.limit != nil {
				tc.limit(&v.Limits)
			}
			p.Ask.OOMScoreAdj, p.Ask.OOMScoreAdjByContainer = tc.pod, tc.spec
			pl, _ := container.Decide(v, p, pt.Container(p))
			pt.Want(t, pl, want{"oom_score_adj": tc.want}, false)
		})
	}
}

// file puts the strategy of a manifest into the view.
func file(t testing.TB, v *node.View, path string) *node.View {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return pt.YAML(t, v, string(data))
}
