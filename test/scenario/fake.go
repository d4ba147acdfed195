// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	nriapi "github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Fake is a scenario on a fake root: kerneltest's tree stands in for the kernel, runc's part is played by writes in
// runc's order.
type Fake struct {
	Paper *Paper
	Tree  *kerneltest.Tree
	fs    cgroup.FS
	apply *apply.Applier
	procs *processes
	// cookies are core scheduling's.
	cookies *cookies
	given   map[string]map[string]string // container id -> "@env NAME" or "@device PATH" -> value
}

// NewFake builds the tree as the kubelet leaves it before the first container, and the scenario's paper on its kernel.
func NewFake(t testing.TB, s *Scenario, version string) *Fake {
	t.Helper()
	kernel := map[string]string{"v1": "v1", "v2": "6.12"}[version]
	tree := kerneltest.New(t, kernel, "/kubepods/besteffort", "/kubepods/burstable", "/kubepods/probe")
	tree.Resctrl(t, false, false)
	cv := node.CgroupV2
	if version == "v1" {
		cv = node.CgroupV1
	}
	fs, err := cgroup.Open(tree.Roots, cv, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{
		Tree: tree, fs: fs, procs: newProcesses(), given: map[string]map[string]string{},
		cookies: &cookies{byPID: map[int]uint64{}, byGroup: map[string]uint64{}},
	}
	o := apply.Options{FS: fs, Roots: tree.Roots, Journal: discard{}, Tasks: f.procs, Cookies: f.cookies, Groups: f.procs, Writer: tree}
	if f.apply, err = apply.New(o); err != nil {
		t.Fatal(err)
	}
	if f.Paper, err = NewPaper(s, Kernel(version, f.has)); err != nil {
		t.Fatal(err)
	}
	for _, pp := range f.Paper.Pods {
		tree.Mkdir(t, pp.Desc.Cgroup)
		f.kubelet(t, &pp)
	}
	return f
}

// has reports what the fake kernel offers, by looking.
func (f *Fake) has(k plan.Knob) bool {
	switch k {
	case plan.SchedPolicy, plan.OOMScoreAdj, plan.Env, plan.Device, plan.CDIDevice, plan.Mount,
		plan.RDTClass, plan.RDTSchemata, plan.CoreSchedCookie:
		return true
	}
	file, err := f.fs.Path(plan.Target{Level: plan.LevelContainer, Cgroup: "/kubepods/probe"}, k)
	if err != nil {
		return false
	}
	_, err = os.Stat(file)
	return err == nil
}

// kubelet writes the pod's cgroup.
func (f *Fake) kubelet(t testing.TB, pp *PaperPod) {
	t.Helper()
	target := pp.Pod.Target()
	set := func(k plan.Knob, v *int64) {
		if v == nil {
			return
		}
		f.write(t, plan.Setting{Target: target, Knob: k, Value: plan.Int(*v)})
	}
	set(plan.CPUShares, pp.Desc.Shares)
	if pp.Desc.Quota != nil {
		set(plan.CPUPeriod, &pp.Desc.Period)
	}
	set(plan.CPUQuota, pp.Desc.Quota)
	set(plan.MemoryLimit, pp.Desc.Memory)
}

func (f *Fake) write(t testing.TB, s plan.Setting) {
	t.Helper()
	change, err := f.fs.Prepare(s) // a period is written with the quota that stands
	if err != nil {
		t.Fatalf("render %s: %v", s.String(), err)
	}
	for _, w := range change.Writes {
		if err := f.Tree.Write(w.File, w.Data, false); err != nil {
			t.Fatalf("%s: %v", s.String(), err)
		}
	}
}

// NRI runs the path of creation: groups, pod level, then per container adjustment, runc, and the rest at start.
func (f *Fake) NRI(ctx context.Context, t testing.TB) {
	t.Helper()
	f.groups(ctx, t)
	for _, pp := range f.Paper.Pods {
		f.do(ctx, t, pp.Plan)
		for i, c := range pp.Containers {
			adj, rest := nri.Adjust(f.Paper.View, pp.Plans[i], c, "test")
			f.runc(t, pp.Pod, c, ofNRI(c, adj))
			f.do(ctx, t, rest)
		}
	}
}

// Reconcile runs the path of repair: the containers exist as if we had not been there, then everything is written.
func (f *Fake) Reconcile(ctx context.Context, t testing.TB) {
	t.Helper()
	for _, pp := range f.Paper.Pods {
		for _, c := range pp.Containers {
			f.runc(t, pp.Pod, c, specified{resources: c.Base})
		}
	}
	f.groups(ctx, t)
	for _, pp := range f.Paper.Pods {
		f.do(ctx, t, pp.Plan)
		for _, p := range pp.Plans {
			f.do(ctx, t, slices.DeleteFunc(slices.Clone(p), func(s plan.Setting) bool {
				return s.Knob == plan.Env || s.Knob == plan.Device || s.Knob == plan.CDIDevice || s.Knob == plan.Mount
			}))
		}
	}
}

func (f *Fake) groups(ctx context.Context, t testing.TB) {
	t.Helper()
	all, err := f.Paper.All()
	if err != nil {
		t.Fatal(err)
	}
	var outer plan.Plan
	for _, s := range all {
		if s.Target.Level == plan.LevelGroup {
			f.Tree.Group(t, s.Target.Cgroup)
		}
		if s.Target.Level < plan.LevelPod {
			outer = append(outer, s)
		}
	}
	f.do(ctx, t, outer)
}

func (f *Fake) do(ctx context.Context, t testing.TB, p plan.Plan) {
	t.Helper()
	for _, r := range f.apply.Apply(ctx, p, 1) {
		if r.Err != nil {
			t.Errorf("%s: %v", r.Setting.String(), r.Err)
		}
	}
	if err := f.apply.Wait(ctx); err != nil {
		t.Error(err)
	}
}

// specified is what the runtime hands to runc.
type specified struct {
	resources workload.Resources
	// swap: the limit of memory and swap follows the memory limit.
	swap   bool
	oom    unit.Opt // over resources' own
	policy int
	class  string
	given  map[string]string // "@env NAME" or "@device PATH" -> value
}

// runc makes the container's cgroup, in runc's order: memory, cpu, cpuset, then the unified keys.
func (f *Fake) runc(t testing.TB, p *workload.Pod, c *workload.Container, spec specified) {
	t.Helper()
	f.Tree.Mkdir(t, c.Cgroup)
	r := spec.resources
	target := c.Target(p)
	ints := []struct {
		k plan.Knob
		o unit.Opt
	}{{plan.MemoryLimit, r.MemoryLimit}, {plan.CPUShares, r.Shares}, {plan.CPUPeriod, r.Period}, {plan.CPUQuota, r.Quota}}
	for _, i := range ints {
		if i.o.Set && i.o.V != 0 {
			f.write(t, plan.Setting{Target: target, Knob: i.k, Value: plan.Int(i.o.V)})
		}
	}
	if f.fs.Version() == node.CgroupV1 && spec.swap {
		if err := f.Tree.Write(f.Tree.Path(c.Cgroup, "memory.memsw.limit_in_bytes"), strconv.FormatInt(r.MemoryLimit.V, 10), false); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []struct {
		k plan.Knob
		v string
	}{{plan.CPUSetCPUs, r.CPUs}, {plan.CPUSetMems, r.Mems}} {
		if s.v != "" {
			f.write(t, plan.Setting{Target: target, Knob: s.k, Value: plan.Text(s.v)})
		}
	}
	for key, value := range r.Unified {
		if err := f.Tree.Write(f.Tree.Path(c.Cgroup, key), value, false); err != nil {
			t.Errorf("unified %s: %v", key, err)
		}
	}
	pid := f.procs.start(int(r.OOMScoreAdj.V))
	for _, ctrl := range []string{"cpu", "cpuset", "memory", "blkio"} {
		file := f.Tree.Path(c.Cgroup, "cgroup.procs")
		if f.fs.Version() == node.CgroupV1 {
			file = f.Tree.Roots.Cgroup + "/" + ctrl + c.Cgroup + "/cgroup.procs"
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if spec.oom.Set {
		f.procs.oom[pid] = int(spec.oom.V)
	}
	f.procs.policy[pid] = spec.policy
	if spec.class != "" {
		f.procs.group[pid] = spec.class
	}
	f.given[c.ID] = spec.given
}

// policies are the SCHED_* numbers behind NRI's names.
var policies = map[nriapi.LinuxSchedulerPolicy]int{nriapi.LinuxSchedulerPolicy_SCHED_IDLE: 5, nriapi.LinuxSchedulerPolicy_SCHED_BATCH: 3}

// ofNRI is the request as a plugin's reply changes it.
func ofNRI(c *workload.Container, adj *nriapi.ContainerAdjustment) specified {
	linux := adj.GetLinux()
	out := specified{
		resources: mark.Overlay(c.Base, nri.Resources(linux.GetResources())),
		swap:      linux.GetResources().GetMemory().GetLimit().GetValue() > 0, // by NRI's generator (facts 2.3)
		class:     linux.GetResources().GetRdtClass().GetValue(), given: map[string]string{},
	}
	if o := linux.GetOomScoreAdj(); o != nil {
		out.oom = unit.Some(o.GetValue())
	}
	if s := linux.GetScheduler(); s != nil {
		out.policy = policies[s.GetPolicy()]
	}
	for _, e := range adj.GetEnv() {
		out.given["@env "+e.GetKey()] = e.GetValue()
	}
	for _, d := range linux.GetDevices() {
		out.given["@device "+d.GetPath()] = fmt.Sprintf("%s %d:%d", d.GetType(), d.GetMajor(), d.GetMinor())
	}
	return out
}

// Read is the present value behind a wanted line.
func (f *Fake) Read(w Want) (string, error) {
	switch {
	case w.Group != "":
		return f.group(w)
	case w.File == "@cookie":
		return f.Paper.scenario.Holder(w, f.cookie)
	}
	dir := f.dir(w.Pod, w.Container)
	if !strings.HasPrefix(w.File, "@") {
		data, err := os.ReadFile(f.Tree.Path(dir, w.File))
		return strings.TrimSpace(string(data)), err
	}
	pid, err := f.pid(dir)
	if err != nil {
		return "", err
	}
	switch w.File {
	case "@oom":
		return strconv.Itoa(f.procs.oom[pid]), nil
	case "@sched":
		return strconv.Itoa(f.procs.policy[pid]), nil
	case "@resctrl":
		return f.procs.group[pid], nil
	}
	given := f.given[path.Base(dir)]
	if number, asked := strings.CutPrefix(w.File, "@access "); asked {
		return access(given, number), nil
	}
	value, ok := given[w.File]
	if !ok && strings.HasPrefix(w.File, "@device") {
		return "none", nil
	}
	return value, nil
}

// access is the device cgroup that runc makes: a container has the devices that it was given.
func access(given map[string]string, number string) string {
	for key, value := range given {
		if strings.HasPrefix(key, "@device ") && value == "c "+number {
			return "allowed"
		}
	}
	return "refused"
}

// dir is the cgroup of a container, of a pod, or of all pods.
func (f *Fake) dir(pod, container string) string {
	dir := "/kubepods"
	for _, pp := range f.Paper.Pods {
		if pp.Pod.Name != pod {
			continue
		}
		dir = pp.Desc.Cgroup
		for _, c := range pp.Containers {
			if c.Name == container {
				dir = c.Cgroup
			}
		}
	}
	return dir
}

// pid of a container's process.
func (f *Fake) pid(dir string) (int, error) {
	pids, err := os.ReadFile(f.Tree.Path(dir, "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(pids)))
}

// discard is a ledger that nobody reads.
type discard struct{}

func (discard) Append(...journal.Record) error { return nil }

// processes plays /proc and resctrl's tasks files.
type processes struct {
	mu          sync.Mutex
	next        int
	oom, policy map[int]int
	group       map[int]string
	schemata    map[string]string
}

func newProcesses() *processes {
	return &processes{next: 1000, oom: map[int]int{}, policy: map[int]int{}, group: map[int]string{}, schemata: map[string]string{}}
}

func (p *processes) start(oom int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.oom[p.next] = oom
	return p.next
}

func (p *processes) SchedPolicy(pid int) (int, error)     { return p.policy[pid], nil }
func (p *processes) SetSchedPolicy(pid, policy int) error { p.policy[pid] = policy; return nil }
func (p *processes) OOMScoreAdj(pid int) (int, error)     { return p.oom[pid], nil }
func (p *processes) SetOOMScoreAdj(pid, score int) error  { p.oom[pid] = score; return nil }
func (p *processes) MoveTasks(group string, pids []int) error {
	for _, pid := range pids {
		p.group[pid] = group
	}
	return nil
}
func (p *processes) InGroup(group string, pid int) (bool, error) { return p.group[pid] == group, nil }
func (p *processes) InMon(string, string, int) (bool, error)     { return false, nil }
func (p *processes) AddMon(string, string, []int) error          { return nil }
func (p *processes) Schemata(group string) (string, error) {
	return cmp.Or(p.schemata[group], "L3:0=fffff;1=fffff\n"), nil
}
func (p *processes) SetSchemata(group, line string) error {
	p.schemata[group] = line + "\n"
	return nil
}
