// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// lifecycleRestore compares the trees before us and after koordctl restore, byte for byte.
func lifecycleRestore(r *rig) {
	// These were there before us: all of theirs must come back, container level too.
	often := bePod("old-often")      // its pod has the kernel's period, its container this one
	if r.driver != kubelet.Systemd { // which gives every unit without a quota 100 ms, when it writes the next time (cgroup_cpu_adjust_period)
		often.QuotaPeriod = 10000
	}
	old := []*kubelet.Running{r.pod(lsPod("old-ls")), r.pod(bePod("old-be")), r.pod(lsrPod("old-lsr")), r.pod(idlePod("old-idle")), r.pod(often)}
	before, attributes, groups := r.treesOf(old), r.attributesOf(old), resctrlTree(r)
	// These are made with us; what they would have been without us is what their twins were.
	twins := map[string]portrait{}
	for _, p := range []kubelet.Pod{lsPod("new-ls"), bePod("new-be"), idlePod("new-idle")} {
		run := r.pod(p)
		twins[p.Name] = r.trees(run)
		maps.Copy(twins[p.Name], r.attributesOf([]*kubelet.Running{run}))
		if err := r.kube.StopPod(r.t.Context(), run); err != nil {
			r.t.Fatal(err)
		}
	}
	_, rest := cpus()
	disk, number := r.disk()
	r.makeDevices(card)
	r.up(everything(disk), onlyEvents())
	r.soon(5*time.Second, old[0], wants("LS", rest))
	r.soon(5*time.Second, old[1], wants("BE", rest))
	r.soon(5*time.Second, old[2], wants("LSR", ""))
	r.soon(5*time.Second, old[3], wants("idle", rest))
	r.soon(5*time.Second, old[4], r.halfACPU(often.QuotaPeriod))
	fresh := []*kubelet.Running{r.pod(lsPod("new-ls")), r.pod(bePod("new-be")), r.pod(idlePod("new-idle"))}
	r.now(fresh[1], wants("BE", rest))
	r.now(fresh[2], wants("idle", rest))
	r.soon(5*time.Second, old[1], limitedDisk(r, number))
	r.soon(5*time.Second, fresh[1], limitedDisk(r, number))
	// This one is given what no restore takes from a container that runs.
	gpu, given := lsPod("new-gpu"), []string{"main @env NVIDIA_VISIBLE_DEVICES=GPU-lab", "main @device /dev/nvidia0=c 195:0"}
	gpu.Annotations = map[string]string{"scheduling.koordinator.sh/device-allocated": allocated}
	owner := r.pod(gpu)
	if mark, err := r.annotation(owner, "main"); err == nil && mark == "" && r.unmarked(gpu.FullName()) { // only another creation gives it anything
		if err := r.kube.StopPod(r.t.Context(), owner); err != nil {
			r.t.Fatal(err)
		}
		owner = r.pod(gpu)
	}
	r.soon(2*time.Second, owner, given)
	if slices.Contains(present(r.t), scenario.NeedResctrl) && len(differences(groups, resctrlTree(r))) == 0 {
		r.t.Error("no resctrl group was made: its restore shows nothing")
	}
	r.stop(syscall.SIGTERM)
	set := r.treesOf(append(slices.Clone(old), fresh...))

	// Somebody else changes one value of ours: it is theirs now.
	ctrl, file := "cpu", map[bool]string{false: "cpu.cfs_quota_us", true: "cpu.max"}[r.tree.V2()]
	if err := cgroups.Write(r.kube.PodDir(old[1], ctrl), file, "70000"); err != nil {
		r.t.Fatal(err)
	}
	ours := r.treesOf(append(slices.Clone(old), fresh...))
	out, err := r.ctl("restore", "--dry-run")
	if err != nil || !strings.Contains(out, " to restore, ") {
		r.t.Errorf("restore --dry-run: %v\n%s", err, out)
	}
	r.toRecreate(out)
	r.identical("restore --dry-run", ours, r.treesOf(append(slices.Clone(old), fresh...)))
	if out, err = r.ctl("restore"); err != nil {
		r.t.Fatalf("restore: %v\n%s", err, out)
	}
	r.toRecreate(out)
	r.soon(0, owner, given)
	if r.driver == kubelet.Systemd {
		r.staysRestored(set, func() portrait { return r.treesOf(append(slices.Clone(old), fresh...)) })
	}
	// The class's weight is kubelet's sum of its pods: the trees of the beginning and of the twins are without this one, and those of the
	// beginning without the others.
	if err := r.kube.StopPod(r.t.Context(), owner); err != nil {
		r.t.Fatal(err)
	}
	for _, run := range fresh {
		now := r.trees(run)
		maps.Copy(now, r.attributesOf([]*kubelet.Running{run}))
		r.restoredTwin(run, twins[run.Pod.Name], now)
		if run == fresh[0] {
			r.updatesRestored(run)
		}
		if err := r.kube.StopPod(r.t.Context(), run); err != nil {
			r.t.Fatal(err)
		}
	}
	r.restoredOld(old[1], before, r.treesOf(old), file)
	r.identical("resctrl after restore", groups, resctrlTree(r))
	r.identical("processes after restore", attributes, r.attributesOf(old))
	if out, err := r.ctl("restore"); err != nil || !strings.Contains("\n"+out, "\n0 restored, ") {
		r.t.Errorf("a second restore finds something to do: %v\n%s", err, out)
	}
}

// halfACPU is what a BE pod with a limit of half a CPU has under a kubelet with this period, 0 for everybody's.
func (r *rig) halfACPU(period int64) []string {
	period = cmp.Or(period, int64(unit.CFSPeriod))
	quota, of := strconv.FormatInt(period/2, 10), strconv.FormatInt(period, 10)
	if r.tree.V2() {
		return []string{"main cpu.max=" + quota + " " + of, "pod cpu.max=" + quota + " " + of}
	}
	return []string{"main cpu.cfs_quota_us=" + quota, "pod cpu.cfs_quota_us=" + quota, "pod cpu.cfs_period_us=" + of}
}

// updatesRestored: the kubelet resizes a pod that was made with us, down and up, after the restore. What the runtime has on record of it is what
// the kubelet asked for: nothing of ours comes back with the update, and no burst of ours has the smaller limit refused.
func (r *rig) updatesRestored(run *kubelet.Running) {
	r.t.Helper()
	for _, step := range []struct {
		cpu   kubelet.Quantity
		quota string
	}{{"250m", "25000"}, {"1", "100000"}} {
		if err := r.kube.ResizeContainer(r.t.Context(), run, "main", limited(step.cpu, "192Mi")); err != nil {
			r.t.Errorf("a resize to %s after the restore: %v", step.cpu, err)
		}
		want := []string{"main cpu.cfs_quota_us=" + step.quota, "main cpu.cfs_burst_us=0"}
		if r.tree.V2() {
			want = []string{"main cpu.max=" + step.quota + " 100000", "main cpu.max.burst=0", "main memory.high=max", "main memory.min=0", "main memory.low=0"}
		}
		r.soon(0, run, want)
	}
}

// everything is a strategy that writes on every level and to every kind of file: memory.min and memory.low need each ancestor, a class
// has a resctrl group, and the disk is throttled, on the pod (v2) or the container (v1).
func everything(disk string) string {
	return `
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 100}
resourceQOSStrategy:
  lsClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 100, throttlingPercent: 90}}
  lsrClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 100}}
  beClass:
    cpuQOS: {enable: true, groupIdentity: -1}
    resctrlQOS: {enable: true, catRangeEndPercent: 30}
    blkioQOS: {enable: true, blocks: [{name: /dev/` + disk + `, type: device, ioCfg: {readIOPS: 200}}]}
`
}

// limitedDisk is what everything makes of a BE pod's traffic to the disk.
func limitedDisk(r *rig, number string) []string {
	if r.tree.V2() {
		return []string{"pod io.max=" + number + " rbps=max wbps=max riops=200 wiops=max"}
	}
	return []string{"main blkio.throttle.read_iops_device=" + number + " 200"}
}

// staysRestored reloads systemd, which writes every property of its units again: none may be the value that we had set. What
// systemd by itself makes of other files is no business of ours; memory.oom.group, of which that is known, is put back for the
// comparisons that follow.
func (r *rig) staysRestored(set portrait, look func() portrait) {
	r.t.Helper()
	restored, oom := look(), r.oomGroups()
	defer func() {
		for dir, value := range oom {
			if err := cgroups.Write(dir, plan.MemoryOOMGroup.String(), value); err != nil {
				r.t.Error(err)
			}
		}
	}()
	r.reload()
	seen := map[string]bool{}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		now := look()
		for file, value := range now {
			if value == restored[file] || seen[file] {
				continue
			}
			seen[file] = true
			if value == set[file] {
				r.t.Errorf("a daemon-reload after the restore brings ours back: %s %q, restored was %q", file, value, restored[file])
				continue
			}
			r.t.Logf("systemd writes %s: %q, restored was %q", file, value, restored[file])
		}
	}
}

// oomGroups are the scopes that the kubelet's memory.oom.group stands in.
func (r *rig) oomGroups() map[string]string {
	r.t.Helper()
	if !r.tree.V2() {
		return nil // there is none
	}
	out := map[string]string{}
	err := filepath.WalkDir(filepath.Join(r.tree.Unified, r.root()), func(dir string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasSuffix(dir, ".scope") {
			out[dir], err = cgroups.Read(dir, plan.MemoryOOMGroup.String())
		}
		return err
	})
	if err != nil || len(out) == 0 {
		r.t.Fatalf("look for memory.oom.group of scopes: found %d, %v", len(out), err)
	}
	return out
}

// widest is a list that no kernel lets us empty again while there are processes: it names all that there is, so the effective one must be equal.
var widest = regexp.MustCompile(`/(cri-containerd-)?CONTAINER(\.scope)?/cpuset\.(cpus|mems):`)

// restoredOld compares byte for byte, but for the one file of the pod that somebody else has changed meanwhile.
func (r *rig) restoredOld(changed *kubelet.Running, before, after portrait, file string) {
	r.t.Helper()
	theirs := 0
	uid := changed.Pod.UID
	if r.driver == kubelet.Systemd {
		uid = strings.ReplaceAll(uid, "-", "_")
	}
	for _, d := range differences(before, after) {
		if strings.Contains(d, "pod"+uid) && strings.Contains(d, "/"+file+":") && strings.Contains(d, "70000") && !strings.Contains(d, "CONTAINER") {
			theirs++
			continue
		}
		if r.tree.V2() && widest.MatchString(d) {
			continue
		}
		r.t.Errorf("after restore: %s", d)
	}
	if theirs != 1 {
		r.t.Errorf("the value that somebody else had changed was not left alone: it stands in %d files", theirs)
	}
}

// attributesOf is what belongs to the pods' processes and to no cgroup.
func (r *rig) attributesOf(runs []*kubelet.Running) portrait {
	r.t.Helper()
	out := portrait{}
	for _, run := range runs {
		for _, what := range []string{"@oom", "@sched"} {
			v, err := r.value(run, "main "+what)
			if err != nil {
				r.t.Fatalf("%s %s: %v", run.Pod.Name, what, err)
			}
			out[run.Pod.Name+" "+what] = v
		}
	}
	return out
}

// toRecreate fails unless restore names the card's node and variable, and nothing else, as what only a new container is without.
func (r *rig) toRecreate(out string) {
	r.t.Helper()
	var want, got []string
	for _, knob := range []string{"device[/dev/nvidia0]", "env[NVIDIA_VISIBLE_DEVICES]"} {
		want = append(want, "recreate container default/new-gpu/main "+knob+" - - stands in the container's specification")
	}
	for line := range strings.Lines(out) {
		if line = oneLine(line); strings.HasPrefix(line, "recreate ") {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || !strings.Contains(out, ", 2 need a new container, 0 failed, ") {
		r.t.Errorf("restore should say %q:\n%s", want, out)
	}
}

// protecting makes every level write: memory.min and memory.low need each ancestor.
const protecting = `
  lsClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 100, throttlingPercent: 90}}
  lsrClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 100}}
`

// treesOf are the trees of several pods, in one map; ids are kept apart by the pods' uids in the paths.
func (r *rig) treesOf(runs []*kubelet.Running) portrait {
	out := portrait{}
	for _, run := range runs {
		maps.Copy(out, r.trees(run))
	}
	return out
}

// restoredTwin compares a pod that was made with us with its twin that was not: its pod level and above are equal, and
// its container's but for a cpuset, which cannot be empty again on cgroup v1 and lists all CPUs.
func (r *rig) restoredTwin(run *kubelet.Running, want, got portrait) {
	r.t.Helper()
	for _, d := range differences(want, got) {
		if !widest.MatchString(d) {
			r.t.Errorf("after restore: %s: %s", run.Pod.Name, d)
		}
	}
}

// resctrlTree is every group with its schemata, where the hardware has resctrl.
func resctrlTree(r *rig) portrait {
	r.t.Helper()
	out := portrait{}
	files, err := filepath.Glob("/sys/fs/resctrl/*/schemata")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range append(files, "/sys/fs/resctrl/schemata") {
		if text, err := os.ReadFile(f); err == nil {
			out[f] = string(text)
		}
	}
	return out
}
