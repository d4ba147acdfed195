// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

var target = plan.Target{Level: plan.LevelContainer, Cgroup: "/k/c1", Pod: "u", Container: "c1", Name: "default/web/app"}

// lines shows a plan's settings without target and reason.
func lines(p plan.Plan) []string {
	var out []string
	for i := range p {
		s := p[i]
		key := ""
		if s.Key != "" {
			key = "[" + s.Key + "]"
		}
		out = append(out, s.Knob.String()+key+"="+s.Value.String()+" "+s.By()+" "+s.Owner.String())
	}
	return out
}

// koordlet answers with a copy of the request: that is no wish.
func TestEchoChangesNothing(t *testing.T) {
	t.Parallel()
	r := hook.ContainerRequest{Annotations: map[string]string{"a": "b"}, Resources: resources(), PodCgroupParent: "/kubepods/pod1", Env: map[string]string{"A": "B"}}
	a := hook.ContainerAnswer{Annotations: r.Annotations, Resources: r.Resources, PodCgroupParent: r.PodCgroupParent, Env: r.Env}
	if c := a.Change(&r, "koordlet", target); !c.Empty() || len(c.Problems) > 0 {
		t.Errorf("change = %+v", c)
	}
	p := hook.PodRequest{Labels: map[string]string{"a": "b"}, Resources: resources(), CgroupParent: "x.slice"}
	b := hook.PodAnswer{Labels: p.Labels, Resources: p.Resources, CgroupParent: p.CgroupParent}
	if c := b.Change(&p, "koordlet", target); !c.Empty() || len(c.Problems) > 0 {
		t.Errorf("change = %+v", c)
	}
	// Neither is an answer that says nothing: a missing cpuset or oom_score_adj does not erase the request's.
	if c := (&hook.ContainerAnswer{Resources: &hook.Resources{}}).Change(&r, "koordlet", target); !c.Empty() {
		t.Errorf("change = %+v", c)
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	asked := hook.ContainerRequest{
		Annotations: map[string]string{"keep": "1", "old": "1"}, PodCgroupParent: "/kubepods/pod1",
		Resources: &hook.Resources{Shares: 2, Quota: 1000, Unified: map[string]string{"memory.high": "max"}},
		Env:       map[string]string{"KEEP": "1", "OLD": "1", "GONE": "1"},
	}
	answer := hook.ContainerAnswer{
		Annotations: map[string]string{"keep": "1", "old": "2", "new": "3"}, PodCgroupParent: "/offline/pod1",
		Resources: &hook.Resources{
			Shares: 512, Quota: -1, Memory: 4096, OOMScoreAdj: 900, CPUs: "0-1,4", Mems: "0", Swap: -1,
			Unified: map[string]string{
				"memory.high": "max", "memory.low": "max", "memory.min": "7", "cpu.idle": "1", "cpu.bvt_warp_ns": "-1", "hugetlb.2MB.max": "0",
				"io.max": "8:0 rbps=1 wiops=max\n8:16 wbps=9\n", "io.weight": "default 50", "io.latency": "8:0 target=75",
			},
		},
		Env: map[string]string{"KEEP": "1", "OLD": "2", "NEW": "3"},
	}
	c := answer.Change(&asked, "koordlet", target)
	want := []string{
		"cpu.shares=512 hook:koordlet batch", "cpu.quota=-1 hook:koordlet batch", "cpu.idle=1 hook:koordlet cpu-identity",
		"cpu.bvt=-1 hook:koordlet cpu-identity", "cpuset.cpus=0-1,4 hook:koordlet cpuset", "cpuset.mems=0 hook:koordlet cpuset",
		"memory.limit=4096 hook:koordlet batch", "memory.min=7 hook:koordlet memory-qos", "memory.low=-1 hook:koordlet memory-qos",
		"io.read_bps[8:0]=1 hook:koordlet blkio", "io.write_bps[8:16]=9 hook:koordlet blkio", "io.write_iops[8:0]=-1 hook:koordlet blkio",
		"io.weight=50 hook:koordlet blkio", "io.latency[8:0]=75 hook:koordlet blkio", "oom_score_adj=900 hook:koordlet oom-score",
		"env[NEW]=3 hook:koordlet devices", "env[OLD]=2 hook:koordlet devices",
	}
	if diff := cmp.Diff(want, lines(c.Plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	c.Plan = nil
	if diff := cmp.Diff(hook.Change{
		Annotations: map[string]string{"old": "2", "new": "3"}, CgroupParent: "/offline/pod1", EnvRemoved: []string{"GONE"},
		Swap: unit.Some(-1), Unified: map[string]string{"hugetlb.2MB.max": "0"},
	}, c); diff != "" {
		t.Errorf("rest (-want +got):\n%s", diff)
	}
}

// What is wrong is named, and the rest applies.
func TestChangeWithProblems(t *testing.T) {
	t.Parallel()
	answer := hook.ContainerAnswer{
		Annotations: map[string]string{"ok": "1", "": "x", "nul": "a\x00", "koord-rt.dev/applied": "{}"}, PodCgroupParent: "/a/../../etc",
		Resources: &hook.Resources{
			Period: 1, Quota: 5, Shares: 1, Memory: -2, OOMScoreAdj: 1001, CPUs: "3-1", Mems: "x", Swap: -9,
			Unified: map[string]string{
				"cpu.weight": "100", "../x": "1", "memory.low": "many", "cpu.idle": "2", "io.max": "8:0 rbps", "io.latency": "sda target=1",
				"io.weight": "1 2 3", "cpu.max": "max 100000", "memory.min": "-1", "cpuset.cpus": "all", "memory.max": "5",
			},
		},
		Env: map[string]string{"A=B": "secret", "OK": "1"},
	}
	c := answer.Change(&hook.ContainerRequest{}, "x", target)
	want := []string{"cpu.quota=-1 hook:x batch", "cpu.period=100000 hook:x batch", "memory.limit=5 hook:x batch", "env[OK]=1 hook:x devices"}
	if diff := cmp.Diff(want, lines(c.Plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if c.CgroupParent != "" || c.Swap.Set || len(c.Unified) > 0 || len(c.Annotations) != 1 {
		t.Errorf("change = %+v", c)
	}
	var text []string
	for _, p := range c.Problems {
		text = append(text, p.String())
	}
	all := strings.Join(text, "\n")
	for _, name := range []string{
		`container_annotations: ""`, `container_annotations: "nul"`, `"koord-rt.dev/applied": not`, "pod_cgroup_parent", "cpu_period", "cpu_quota", "cpu_shares", "memory_limit_in_bytes",
		"oom_score_adj", "cpuset_cpus", "cpuset_mems", "memory_swap_limit_in_bytes", `"cpu.weight": give cpu_shares`, `"../x"`, `"memory.low"`,
		`"cpu.idle"`, `"io.max"`, `"io.latency"`, `"io.weight"`, `"memory.min"`, `"cpuset.cpus"`, `container_envs: "A=B"`,
	} {
		if !strings.Contains(all, name) {
			t.Errorf("no problem says %s:\n%s", name, all)
		}
	}
	if len(text) != 22 || strings.Contains(all, "secret") {
		t.Errorf("%d problems:\n%s", len(text), all)
	}
}

// An answer of 4 MiB holds hundreds of thousands of lines, each looked for among those before it.
func TestChangeIsBounded(t *testing.T) {
	t.Parallel()
	var limits strings.Builder
	for i := range 600 {
		limits.WriteString("1:" + strconv.Itoa(i) + " rbps=1\n")
	}
	a := hook.ContainerAnswer{Resources: &hook.Resources{Unified: map[string]string{"io.max": limits.String(), "memory.high": "7"}}}
	c := a.Change(&hook.ContainerRequest{}, "x", target)
	if len(c.Plan) != 513 || c.Plan.Get(plan.MemoryHigh) == nil {
		t.Errorf("%d settings", len(c.Plan))
	}
	if len(c.Problems) != 1 || c.Problems[0].String() != `unified: "io.max": more than 512 settings in one answer` {
		t.Errorf("problems %v", c.Problems)
	}
}

// A device has one name, so that one answer cannot set it twice.
func TestDeviceHasNoLeadingZeros(t *testing.T) {
	t.Parallel()
	a := hook.ContainerAnswer{Resources: &hook.Resources{Unified: map[string]string{"io.max": "8:0 rbps=1\n08:0 rbps=2\n", "io.weight": "8:00 50"}}}
	c := a.Change(&hook.ContainerRequest{}, "x", target)
	if diff := cmp.Diff([]string{"io.read_bps[8:0]=1 hook:x blkio"}, lines(c.Plan)); diff != "" || len(c.Problems) != 2 {
		t.Errorf("problems %v, plan (-want +got):\n%s", c.Problems, diff)
	}
}

func TestFieldAndFileOfOneKnob(t *testing.T) {
	t.Parallel()
	a := hook.ContainerAnswer{Resources: &hook.Resources{Memory: 5, Unified: map[string]string{"memory.max": "6"}}}
	c := a.Change(&hook.ContainerRequest{}, "x", target)
	if diff := cmp.Diff([]string{"memory.limit=5 hook:x batch"}, lines(c.Plan)); diff != "" || len(c.Problems) != 1 {
		t.Errorf("%s %v", diff, c.Problems)
	}
}

func TestEnvValuesStayOutOfPrintedPlans(t *testing.T) {
	t.Parallel()
	a := hook.ContainerAnswer{Env: map[string]string{"TOKEN": "secret"}}
	c := a.Change(&hook.ContainerRequest{}, "x", target)
	if got := c.Plan.String(); strings.Contains(got, "secret") || !strings.Contains(got, "env[TOKEN] = (hidden) (hook:x: ") {
		t.Error(got)
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	var all hook.Set
	for k := range hook.NumKinds {
		got, ok := hook.ParseKind(k.String())
		if !ok || got != k || k.Method() != "/runtime.v1alpha1.RuntimeHookService/"+k.String()+"Hook" ||
			k.Before() != strings.HasPrefix(k.String(), "Pre") || k.OfPod() != strings.HasSuffix(k.String(), "PodSandbox") {
			t.Errorf("%v: parsed %v %v", k, got, ok)
		}
		if all.Has(k) || !all.With(k).Has(k) {
			t.Errorf("set and %v", k)
		}
	}
	if _, ok := hook.ParseKind("PreRemoveRunPodSandbox"); ok || !hook.IsDormant("PreRemoveRunPodSandbox") || hook.IsDormant("x") {
		t.Error("a hook that is never called")
	}
	if all.With(hook.NumKinds) != 0 || hook.NumKinds.String() != "hook(7)" {
		t.Error("what is no hook")
	}
}

// FuzzChange: whatever a server answers, what is planned is within the kernel's ranges and for the right target.
func FuzzChange(f *testing.F) {
	f.Add([]byte("\x12\x04\x18\x80\x04\x0a"), "io.max", "8:0 rbps=5")
	f.Add([]byte(""), "cpu.max", "max 1000")
	f.Add([]byte(""), "io.weight", "8:0 7\ndefault 9")
	f.Fuzz(func(t *testing.T, raw []byte, file, value string) {
		a, err := hook.DecodeContainerAnswer(raw)
		if err != nil {
			a = hook.ContainerAnswer{}
		}
		if a.Resources == nil {
			a.Resources = &hook.Resources{}
		}
		if a.Resources.Unified == nil {
			a.Resources.Unified = map[string]string{}
		}
		a.Resources.Unified[file] = value
		c := a.Change(&hook.ContainerRequest{}, "x", target)
		seen := map[plan.ID]bool{}
		for i := range c.Plan {
			s := &c.Plan[i]
			info := s.Knob.Info()
			if s.Target != target || s.Hook != "x" || seen[s.ID()] || info.Text != s.Value.IsText() {
				t.Fatalf("setting %v", s)
			}
			seen[s.ID()] = true
			if n := s.Value.Int(); !info.Text && (n != -1 || !s.Knob.Unlimitable()) && (n < info.Min || info.Max != -1 && n > info.Max) {
				t.Fatalf("setting %v out of range", s)
			}
		}
		for _, p := range c.Problems {
			if len(p.Reason) > 200 || p.Key == "" {
				t.Fatalf("problem %q", p)
			}
		}
	})
}
