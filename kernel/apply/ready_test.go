// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestReadyRealV1(t *testing.T) { testReady(t, node.CgroupV1, realV1) }

func TestReadyRealV2(t *testing.T) { testReady(t, node.CgroupV2, realV2) }

func testReady(t *testing.T, v node.CgroupVersion, tree func(testing.TB) *realTree) {
	t.Helper()
	onTrees(t, v, tree, (*realTree).readying, map[string]func(*readying){
		"start": (*readying).start, "later value": (*readying).later, "entered": (*readying).entered, "below": (*readying).below, "missing": (*readying).missing, "successor": (*readying).successor,
		"writes": (*readying).writes, "given back": (*readying).givenBack, "forgotten": (*readying).forgotten, "limit": (*readying).limit, "closed": (*readying).closed, "inherited": (*readying).inherited,
	})
}

// readying is an Applier on the subtree, and the plan of its container: the values that it has, and its process's policy, which is the normal one (0).
type readying struct {
	*apply.Applier
	t    *testing.T
	r    *realTree
	all  plan.Plan
	ctr  plan.Target
	pid  string
	open int // descriptors before anything is ready
}

func (r *realTree) readying(t *testing.T) *readying {
	t.Helper()
	all := plan.Plan{r.ctr(plan.CPUShares, 256), r.ctr(plan.MemoryLimit, 1<<26), r.ctr(plan.CPUQuota, 50000), r.ctr(plan.SchedPolicy, 0)}
	k := &readying{t: t, r: r, all: all, ctr: all[0].Target}
	k.Applier = k.applier()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the groups are removed
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	k.pid = strconv.Itoa(cmd.Process.Pid)
	k.enter()
	k.values()
	k.open = descriptors(t)
	return k
}

func (k *readying) applier() *apply.Applier {
	k.t.Helper()
	a, err := apply.New(apply.Options{FS: k.r.fs, Roots: root.Default(), Journal: &ledger{}, Tasks: wire.Tasks{FS: proc.FS("/proc")}})
	k.must(err)
	return a
}

func (k *readying) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// enter puts the process into the container's cgroup.
func (k *readying) enter() {
	k.t.Helper()
	dir, err := k.r.fs.ProcsDir(k.ctr)
	k.must(err)
	allowed(k.t, root.Write(dir+"/cgroup.procs", k.pid))
}

// leave takes it out.
func (k *readying) leave() {
	k.t.Helper()
	dir, err := k.r.fs.ProcsDir(plan.Target{Cgroup: "/"})
	k.must(err)
	k.must(root.Write(strings.TrimSuffix(dir, "/")+"/cgroup.procs", k.pid))
}

// values gives the container what its plan says, as a runtime does.
func (k *readying) values() {
	k.t.Helper()
	for _, r := range k.applier().Apply(k.t.Context(), k.all[:3], 1) {
		k.must(r.Err)
	}
}

func (k *readying) ready(want bool) {
	k.t.Helper()
	if got := k.Ready(k.ctr, k.all); got != want {
		k.t.Errorf("ready: %t, want %t", got, want)
	}
}

// holds counts the descriptors that are open for what is ready.
func (k *readying) holds(some bool) {
	k.t.Helper()
	if n := descriptors(k.t) - k.open; n < 0 || some != (n > 0) {
		k.t.Errorf("%d descriptors more than before, want some: %t", n, some)
	}
}

// starts holds the proof of a start against the knobs that must fail in it.
func (k *readying) starts(wrong ...plan.Knob) {
	k.t.Helper()
	_, bad, release := k.Start(k.t.Context(), k.ctr, nil, k.all, 1)
	release()
	var got []plan.Knob
	for _, m := range bad {
		got = append(got, m.Setting.Knob)
	}
	if !slices.Equal(got, wrong) {
		k.t.Errorf("the proof fails for %v, want %v: %v", got, wrong, bad)
	}
	k.holds(false)
}

// instead has an open file be another one, which says text, while f runs.
func (k *readying) instead(file, text string, f func()) {
	k.t.Helper()
	hidden := openAs(k.t, file)
	if hidden < 0 {
		k.t.Fatalf("%s is not open", file)
	}
	name := k.t.TempDir() + "/other"
	k.must(os.WriteFile(name, []byte(text), 0o600))
	other, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	k.must(err)
	k.must(unix.Dup3(other, hidden, unix.O_CLOEXEC))
	k.must(unix.Close(other))
	f()
}

// start reads what is open, and gives it back.
func (k *readying) start() {
	file, err := k.r.fs.Path(k.ctr, plan.CPUShares)
	k.must(err)
	text, err := root.Read(file)
	k.must(err)
	k.ready(true)
	k.holds(true)
	for _, r := range k.applier().Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUShares, 300)}, 1) {
		k.must(r.Err)
	}
	k.instead(file, text, func() { k.starts() })
	k.starts(plan.CPUShares) // what was ready was used up
}

// later has values changed while the files are open.
func (k *readying) later() {
	k.ready(true)
	for _, r := range k.applier().Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUShares, 300), k.r.ctr(plan.MemoryLimit, 1<<25)}, 1) {
		k.must(r.Err)
	}
	k.must(wire.Tasks{FS: proc.FS("/proc")}.SetSchedPolicy(k.number(), proc.SchedBatch))
	k.starts(plan.CPUShares, plan.MemoryLimit, plan.SchedPolicy)
}

func (k *readying) number() int {
	pid, err := strconv.Atoi(k.pid)
	k.must(err)
	return pid
}

// entered finds a process that has come since the list was opened: cgroup v1 shows for a second what its first reader has found.
func (k *readying) entered() {
	k.leave()
	k.ready(true)
	k.enter()
	k.starts()
}

// below finds a process in a group that was made in the container's while its files were open.
func (k *readying) below() {
	k.ready(true)
	dir, err := k.r.fs.ProcsDir(k.ctr)
	k.must(err)
	dir += "/init.scope"
	k.must(os.Mkdir(dir, 0o755))
	k.r.dirs = append(k.r.dirs, dir)
	k.must(root.Write(dir+"/cgroup.procs", k.pid))
	k.starts()
}

// without has the container's cgroups be gone while f runs, and made anew then.
func (k *readying) without(f func()) {
	k.t.Helper()
	k.leave()
	var dirs []string
	for _, d := range k.r.dirs {
		if strings.HasSuffix(d, "/pod/c") {
			dirs = append(dirs, d)
			k.must(os.Remove(d))
		}
	}
	f()
	for _, d := range dirs {
		k.must(os.Mkdir(d, 0o755))
		for _, f := range []string{"/cpuset.cpus", "/cpuset.mems"} {
			if above, err := root.Read(d[:len(d)-2] + f); err == nil && above != "" {
				k.must(root.Write(d+f, above))
			}
		}
	}
	k.enter()
}

// missing keeps nothing of a container whose cgroups are not all there.
func (k *readying) missing() {
	k.without(func() {
		k.ready(false)
		k.holds(false)
	})
	k.values()
	k.starts()
}

// successor proves the cgroup that stands at the path when the start comes.
func (k *readying) successor() {
	k.ready(true)
	k.without(func() {})
	k.values()
	k.holds(true)
	k.starts()
	k.ready(true)
	k.without(func() {})
	k.starts(plan.CPUShares, plan.MemoryLimit, plan.CPUQuota)
	k.ready(true)
	k.without(func() {})
	results, bad, release := k.Start(k.t.Context(), k.ctr, k.all[:3], k.all, 1)
	release()
	if bad != nil || slices.ContainsFunc(results, func(r apply.Result) bool { return r.Outcome != apply.Written }) {
		k.t.Errorf("what the successor needs: %+v; the proof says %v", results, bad)
	}
	k.holds(false)
}

// writes goes through files that were opened to be read.
func (k *readying) writes() {
	k.ready(true)
	todo := plan.Plan{k.r.ctr(plan.CPUShares, 300), k.r.ctr(plan.MemoryLimit, 1<<25)}
	results, bad, release := k.Start(k.t.Context(), k.ctr, todo, todo, 1)
	release()
	if bad != nil || results[0].Outcome != apply.Written || results[1].Outcome != apply.Written {
		k.t.Errorf("results %+v; the proof says %v", results, bad)
	}
	k.holds(false)
}

// given back is what nobody starts, and what has died where there is no room.
func (k *readying) givenBack() {
	k.ready(true)
	k.Unready(k.ctr)
	k.holds(false)
	k.ReadyMost(1)
	k.ready(true)
	pod := k.all[0]
	pod.Target = k.r.pod(plan.CPUShares, 0).Target
	k.without(func() {
		before := descriptors(k.t)
		if !k.Ready(pod.Target, plan.Plan{pod}) || descriptors(k.t) >= before {
			k.t.Errorf("%d descriptors, %d before: what has died keeps the place", descriptors(k.t), before)
		}
	})
	k.Unready(pod.Target)
	k.holds(false)
}

// forgotten closes what nobody has started.
func (k *readying) forgotten() {
	k.ready(true)
	k.ready(true) // again: the first goes
	k.must(k.Forget(k.ctr))
	k.holds(false)
	k.starts()
}

// limit keeps no more than it may.
func (k *readying) limit() {
	k.ReadyMost(1)
	k.ready(true)
	before := descriptors(k.t)
	pod := k.all[0]
	pod.Target = k.r.pod(plan.CPUShares, 0).Target
	if !k.Ready(pod.Target, plan.Plan{pod}) || descriptors(k.t) != before {
		k.t.Errorf("a second one has opened %d files", descriptors(k.t)-before)
	}
	k.starts()
	if !k.Ready(pod.Target, plan.Plan{pod}) {
		k.t.Error("the room was not given back")
	}
	k.holds(true)
	k.must(k.Forget(pod.Target))
	k.holds(false)
}

// closed keeps nothing, and what comes afterwards is not made ready.
func (k *readying) closed() {
	k.ready(true)
	k.Close()
	k.holds(false)
	k.ready(true)
	k.holds(false)
	k.starts()
}

// inherited: the Applier that comes after looks everything up.
func (k *readying) inherited() {
	k.ready(true)
	next := k.applier()
	next.Inherit(k.Applier)
	k.holds(false)
	k.ready(true)
	k.holds(false)
	k.Applier = next
	k.ready(true)
	k.holds(true)
	k.starts()
}
