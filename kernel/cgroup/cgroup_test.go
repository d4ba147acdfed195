// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroup_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	pod = "/kubepods/burstable/podX"
	ctr = pod + "/c1"
)

func target(level plan.Level, cg string) plan.Target {
	return plan.Target{Level: level, Cgroup: cg, Name: "default/web"}
}

func open(t testing.TB, tr *kerneltest.Tree) cgroup.FS {
	t.Helper()
	f, err := cgroup.Open(tr.Roots, tr.Version, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// values has, for every knob that may be a file, what a policy could ask.
func values() []plan.Setting {
	set := func(k plan.Knob, key string, v plan.Value) plan.Setting {
		return plan.Setting{Target: target(plan.LevelContainer, ctr), Knob: k, Key: key, Value: v}
	}
	out := []plan.Setting{
		set(plan.CPUShares, "", plan.Int(1024)), set(plan.CPUShares, "", plan.Int(2)),
		set(plan.CPUQuota, "", plan.Int(150000)), set(plan.CPUQuota, "", plan.Int(-1)), set(plan.CPUPeriod, "", plan.Int(50000)),
		set(plan.CPUBurst, "", plan.Int(20000)), set(plan.CPUIdle, "", plan.Int(1)), set(plan.CPUBvt, "", plan.Int(-1)),
		set(plan.CPUSetCPUs, "", plan.Text("0-3,8")), set(plan.CPUSetCPUs, "", plan.Text("")), set(plan.CPUSetMems, "", plan.Text("0")),
		set(plan.MemoryLimit, "", plan.Int(1<<30)), set(plan.MemoryLimit, "", plan.Int(-1)),
		set(plan.MemoryMin, "", plan.Int(1<<20)), set(plan.MemoryLow, "", plan.Int(0)), set(plan.MemoryHigh, "", plan.Int(1<<21)), set(plan.MemoryHigh, "", plan.Int(-1)),
		set(plan.MemoryOOMGroup, "", plan.Int(1)), set(plan.MemoryWmarkRatio, "", plan.Int(95)), set(plan.MemoryWmarkScale, "", plan.Int(20)),
		set(plan.MemoryWmarkMinAdj, "", plan.Int(-25)), set(plan.MemoryPriority, "", plan.Int(12)), set(plan.MemoryUsePriorityOOM, "", plan.Int(1)),
		set(plan.PageCacheEnable, "", plan.Int(1)), set(plan.PageCacheSize, "", plan.Int(4096)), set(plan.PageCacheSync, "", plan.Int(1)),
		set(plan.IOReadBPS, "8:0", plan.Int(1048576)), set(plan.IOReadBPS, "8:0", plan.Int(-1)), set(plan.IOWriteBPS, "8:0", plan.Int(2)),
		set(plan.IOReadIOPS, "8:0", plan.Int(3)), set(plan.IOWriteIOPS, "8:16", plan.Int(4)),
		set(plan.IOWeight, "8:0", plan.Int(50)), set(plan.IOWeight, "", plan.Int(50)), set(plan.IOLatency, "8:0", plan.Int(75000)),
	}
	podShares := set(plan.CPUShares, "", plan.Int(1024))
	podShares.Target = target(plan.LevelPod, pod)
	onNode := func(k plan.Knob, words string) plan.Setting {
		return plan.Setting{Knob: k, Key: "8:0", Value: plan.Text(words)}
	}
	out = append(out, onNode(plan.IOCostQoS, "enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=0.00"), onNode(plan.IOCostQoS, "enable=0 ctrl=auto rpct=0.00 rlat=25000"),
		onNode(plan.IOCostModel, "ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"), onNode(plan.IOCostModel, "ctrl=auto"),
		onNode(plan.IOCostQoS, ""), set(plan.IOCostQoS, "8:0", plan.Text("enable=1")))
	return append(out, podShares, set(plan.OOMScoreAdj, "", plan.Int(1)), set(plan.CPUShares, "", plan.Int(1)), set(plan.CPUBurst, "", plan.Int(-1)),
		set(plan.CPUSetCPUs, "", plan.Int(1)), set(plan.IOReadBPS, "sda", plan.Int(1)))
}

func TestRenderGolden(t *testing.T) {
	t.Parallel()
	for name, kernel := range map[string]string{"v1": "v1", "v2": "6.12"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := kerneltest.New(t, kernel, ctr)
			f := open(t, tr)
			var b strings.Builder
			for _, s := range values() {
				fmt.Fprintf(&b, "%s %s[%s] %s:", s.Target.Level, s.Knob, s.Key, s.Value)
				writes, err := f.Render(s)
				for _, w := range writes {
					fmt.Fprintf(&b, " %s=%q", strings.TrimPrefix(w.File, tr.Roots.Cgroup), w.Data)
				}
				if err != nil {
					fmt.Fprintf(&b, " error: %v", err)
				}
				b.WriteByte('\n')
			}
			golden(t, "render-"+name+".golden", b.String())
		})
	}
}

func TestTableGolden(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, f := range cgroup.Table() {
		fmt.Fprintf(&b, "%s | %s/%s %s | %s %s | %s | %s | %s | %s\n", f.Knob, f.V1Controller, f.V1, f.SinceV1, f.V2, f.SinceV2, f.Elsewhere, f.Unit, f.Range, f.Failure)
		if (f.V1 != "") != (f.SinceV1 != "") || (f.V2 != "") != (f.SinceV2 != "") || f.Failure == "" || f.Unit == "" {
			t.Errorf("%s: incomplete line %+v", f.Knob, f)
		}
		if f.V1 == "" && f.V2 == "" && f.Elsewhere == "" {
			t.Errorf("%s: lives nowhere", f.Knob)
		}
	}
	golden(t, "table.golden", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", name, got)
	}
}

// TestWrittenIsRead: what Render writes, Read gives back and Same accepts, for every knob on every kernel that has it.
func TestWrittenIsRead(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"6.1", "v1", "anolis", "anolis-v2"} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			tr := kerneltest.New(t, kernel, ctr)
			f := open(t, tr)
			for _, s := range values() {
				c, err := f.Prepare(s)
				if err != nil {
					continue // no file here or no valid value: TestRenderGolden lists them
				}
				if s.Knob == plan.CPUBurst {
					tr.Set(t, ctr, "cpu.max", "100000 100000")
					tr.Set(t, ctr, "cpu.cfs_quota_us", "100000")
				}
				if s.Knob == plan.CPUSetCPUs && s.Value.String() == "0-3,8" {
					s.Value = plan.Text("0-3,7")
					if c, err = f.Prepare(s); err != nil {
						t.Fatal(err)
					}
				}
				for _, w := range c.Writes {
					if err := tr.Write(w.File, w.Data, false); err != nil {
						t.Fatalf("%s: %v", s.Knob, err)
					}
				}
				got, err := f.Read(s.ID())
				if err != nil || !f.Same(s, got) {
					t.Errorf("%s[%s] = %s was read as %s, %v", s.Knob, s.Key, s.Value, got, err)
				}
				if s.Knob == plan.CPUIdle {
					tr.Set(t, ctr, "cpu.idle", "0")
				}
			}
		})
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	v2 := open(t, kerneltest.New(t, "6.12", ctr))
	v1 := open(t, kerneltest.New(t, "v1", ctr))
	tests := []struct {
		name string
		fs   cgroup.FS
		knob plan.Knob
		want plan.Value
		raw  string
		same bool
	}{
		{"the other formula's weight", v2, plan.CPUShares, plan.Int(1024), "39", false},
		{"the level's weight", v2, plan.CPUShares, plan.Int(1024), "100", true},
		{"other weight", v2, plan.CPUShares, plan.Int(1024), "79", false},
		{"idle shows 0", v2, plan.CPUShares, plan.Int(2), "0", false},
		{"v1 shares are exact", v1, plan.CPUShares, plan.Int(1024), "1023", false},
		{"sets", v2, plan.CPUSetCPUs, plan.Text("0,1,2"), "0-2", true},
		{"whole pages", v2, plan.MemoryHigh, plan.Int(1000000), "999424", true},
		{"another page", v2, plan.MemoryHigh, plan.Int(1000000), "995328", false},
		{"unlimited v1", v1, plan.MemoryLimit, plan.Int(-1), "9223372036854771712", true},
		{"unlimited v2", v2, plan.MemoryLimit, plan.Int(-1), "max", true},
		{"quota of cpu.max", v2, plan.CPUQuota, plan.Int(-1), "max 100000", true},
		{"period of cpu.max", v2, plan.CPUPeriod, plan.Int(100000), "max 100000", true},
	}
	for _, tt := range tests {
		s := plan.Setting{Target: target(plan.LevelContainer, ctr), Knob: tt.knob, Value: tt.want}
		got, err := tt.fs.Holds(&s, []byte(tt.raw))
		if err != nil || got != tt.same {
			t.Errorf("%s: Holds(%s, %q) = %v, %v", tt.name, tt.want, tt.raw, got, err)
		}
		cur, err := tt.fs.Parse(s.ID(), []byte(tt.raw))
		if err != nil || tt.fs.Same(s, cur) != tt.same {
			t.Errorf("%s: Same(%s, %s) = %v, %v", tt.name, tt.want, cur, !tt.same, err)
		}
	}
}

func TestHostileTargets(t *testing.T) {
	t.Parallel()
	f := open(t, kerneltest.New(t, "6.12", ctr))
	for _, cg := range []string{"/../../etc", "/a/../../b", "/a\x00b", "/" + strings.Repeat("x", 5000)} {
		s := plan.Setting{Target: target(plan.LevelPod, cg), Knob: plan.CPUIdle, Value: plan.Int(1)}
		if _, err := f.Render(s); !errors.Is(err, root.ErrOutside) {
			t.Errorf("Render(%.20q): %v", cg, err)
		}
		if _, err := f.Read(s.ID()); !errors.Is(err, root.ErrOutside) {
			t.Errorf("Read(%.20q): %v", cg, err)
		}
	}
}

func TestOpenV1(t *testing.T) {
	t.Parallel()
	r := root.Roots{Cgroup: t.TempDir()}
	if _, err := cgroup.Open(r, node.CgroupV1, cgroup.Options{}); err == nil {
		t.Error("an empty directory was accepted as cgroup v1")
	}
	if err := os.MkdirAll(r.Cgroup+"/cpu,cpuacct", 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := cgroup.Open(r, node.CgroupV1, cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Path(target(plan.LevelPod, pod), plan.CPUShares); err != nil || got != r.Cgroup+"/cpu,cpuacct"+pod+"/cpu.shares" {
		t.Errorf("Path = %q, %v", got, err)
	}
	if _, err := f.Path(target(plan.LevelPod, pod), plan.CPUSetCPUs); !errors.Is(err, cgroup.ErrNoFile) {
		t.Errorf("cpuset without its controller: %v", err)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	tr := kerneltest.New(t, "v1", ctr)
	f := open(t, tr)
	tr.Set(t, pod, "cpuset.cpus", "0-3")
	tr.Set(t, "/kubepods", "cpu.cfs_quota_us", "200000")
	tests := []struct {
		knob  plan.Knob
		value plan.Value
		want  string
		note  bool
		err   bool
	}{
		{plan.CPUSetCPUs, plan.Text("2-3"), "2-3", false, false},
		{plan.CPUSetCPUs, plan.Text("2-5"), "2-3", true, false},
		{plan.CPUSetCPUs, plan.Text("6-7"), "6-7", false, true},
		{plan.CPUQuota, plan.Int(150000), "150000", false, false},
		{plan.CPUQuota, plan.Int(300000), "200000", true, false},
		{plan.CPUQuota, plan.Int(-1), "-1", false, false},
		{plan.CPUShares, plan.Int(5), "5", false, false},
	}
	for _, tt := range tests {
		got, note, err := f.Fit(plan.Setting{Target: target(plan.LevelContainer, ctr), Knob: tt.knob, Value: tt.value})
		if got.Value.String() != tt.want || (note != "") != tt.note || (err != nil) != tt.err {
			t.Errorf("Fit(%s %s) = %s, %q, %v", tt.knob, tt.value, got.Value, note, err)
		}
	}
}

func TestHoldsDoesNotAllocate(t *testing.T) {
	tr := kerneltest.New(t, "6.12", ctr)
	f := open(t, tr)
	tr.Set(t, ctr, "cpuset.cpus", "0-3")
	b := root.Get()
	defer b.Put()
	settings := []plan.Setting{
		{Target: target(plan.LevelContainer, ctr), Knob: plan.CPUSetCPUs, Value: plan.Text("0-3")},
		{Target: target(plan.LevelContainer, ctr), Knob: plan.MemoryHigh, Value: plan.Int(-1)},
		{Target: target(plan.LevelContainer, ctr), Knob: plan.CPUShares, Value: plan.Int(1024)},
		{Target: target(plan.LevelContainer, ctr), Knob: plan.IOReadBPS, Key: "8:0", Value: plan.Int(-1)},
	}
	n := testing.AllocsPerRun(100, func() {
		for i := range settings {
			raw, err := f.ReadRaw(b, settings[i].Target, settings[i].Knob)
			if err != nil {
				t.Fatal(err)
			}
			if same, err := f.Holds(&settings[i], raw); err != nil || !same {
				t.Fatal(settings[i].Knob, same, err)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParse: any content of any knob's file is a value or an error, and a value that was read is Same as itself.
func FuzzParse(f *testing.F) {
	v2 := open(f, kerneltest.New(f, "6.12", ctr))
	v1 := open(f, kerneltest.New(f, "v1", ctr))
	f.Add(uint8(plan.IOReadBPS), "8:0", []byte("8:0 rbps=1 wbps=max riops=max wiops=max"))
	f.Add(uint8(plan.CPUPeriod), "", []byte("max 100000"))
	f.Add(uint8(plan.CPUSetCPUs), "", []byte("0-3,5"))
	f.Fuzz(func(t *testing.T, knob uint8, key string, raw []byte) {
		k := plan.Knob(knob) % plan.NumKnobs
		id := plan.ID{Target: target(plan.LevelContainer, ctr), Knob: k, Key: key}
		for _, fs := range []cgroup.FS{v1, v2} {
			v, err := fs.Parse(id, raw)
			if err != nil || v.IsText() || k == plan.CPUShares && v.Int() == 0 {
				continue
			}
			if s := (plan.Setting{Target: id.Target, Knob: k, Key: key, Value: v}); k != plan.CPUShares && !fs.Same(s, v) {
				t.Fatalf("%s: %s is not the same as itself", k, v)
			}
		}
	})
}
