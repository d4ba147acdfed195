// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"os"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// firsts is standard with memory QoS for LS and resctrl groups.
const firsts = `
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 100}
resourceQOSStrategy:
  lsClass: {memoryQOS: {enable: true, minLimitPercent: 25, lowLimitPercent: 50, throttlingPercent: 90}, resctrlQOS: {enable: true}}
  beClass: {cpuQOS: {enable: true, groupIdentity: -1}, resctrlQOS: {enable: true, catRangeEndPercent: 50}}
`

// first is a value of a feature as the first program of a container finds it.
type first struct {
	feature protocol.Feature
	by      *kubelet.Running
	key     string // of words
	want    string
	// missing is why this kernel has no such thing, by its own word: then the program has to find what want says, and koord-nri to
	// report the feature as unsupported.
	missing string
}

// firstTable are the features beside those of wants: of the container and of its pod.
func (r *rig) firstTable() []first {
	r.t.Helper()
	disk, number := r.disk()
	be := bePod("first-table-be")
	be.Annotations["koordinator.sh/blkioQOS"] = `{"blocks":[{"name":"/dev/` + disk + `","type":"device","ioCfg":{"readBPS":1048576,"writeIOPS":100}}]}`
	ls := lsPod("first-table-ls") // its request is its limit, so that it is known
	ls.Annotations = map[string]string{"koordinator.sh/memoryQOS": `{"policy":"auto","minLimitPercent":25,"lowLimitPercent":50,"throttlingPercent":90,"oomKillGroup":1}`}
	ls.Containers[0].Resources.Requests = ls.Containers[0].Resources.Limits
	runs := map[string]*kubelet.Running{"be": r.pod(r.tells(be)), "ls": r.pod(r.tells(ls))}

	table := r.firstOfVersion(runs, number)
	for class, run := range map[string]*kubelet.Running{"LS": runs["ls"], "BE": runs["be"]} {
		f := first{feature: protocol.FeatureLLC, by: run, key: "@resctrl", want: "res:" + class}
		if _, err := os.Stat(resctrl + "/schemata"); err != nil {
			if emulated() {
				r.t.Errorf("the lab's VM has resctrl, this one not: %v", err)
			}
			f.want, f.missing = noResctrl(r)
		}
		table = append(table, f)
	}
	r.firstCookie()
	return table
}

// firstOfVersion is the part of the table whose files depend on the version of cgroups.
func (r *rig) firstOfVersion(runs map[string]*kubelet.Running, number string) []first {
	const burst, memory, blkio = protocol.FeatureBurst, protocol.FeatureMemory, protocol.FeatureBlkIO
	be, ls := runs["be"], runs["ls"]
	if cgroupV2() {
		return []first{
			{burst, ls, "cpu.max.burst", "50000", ""}, {burst, ls, "pod.cpu.max.burst", "50000", ""},
			{memory, ls, "memory.min", "33554432", ""}, {memory, ls, "memory.low", "67108864", ""}, {memory, ls, "memory.high", "120795136", ""},
			{memory, ls, "pod.memory.min", "33554432", ""}, {memory, ls, "pod.memory.low", "67108864", ""},
			// What protects the pod is nothing without the directory above it, whose only protected pod this is.
			{memory, ls, "above.memory.min", "33554432", ""}, {memory, ls, "above.memory.low", "67108864", ""},
			{memory, ls, "memory.oom.group", "1", ""}, {memory, ls, "pod.memory.oom.group", "1", ""},
			{blkio, be, "pod.io.max", number + " rbps=1048576 wbps=max riops=max wiops=100", ""},
		}
	}
	// A file that is not in the container's own directory is not in this kernel.
	const none = "cgroup v1 has no such file"
	return []first{
		{burst, ls, "cpu.cfs_burst_us", "50000", ""}, {burst, ls, "pod.cpu.cfs_burst_us", "50000", ""},
		{memory, ls, "memory.min", "absent", none}, {memory, ls, "memory.low", "absent", none}, {memory, ls, "memory.high", "absent", none},
		{memory, ls, "memory.oom.group", "absent", none},
		{blkio, be, "blkio.throttle.read_bps_device", number + " 1048576", ""}, {blkio, be, "blkio.throttle.write_iops_device", number + " 100", ""},
	}
}

// noResctrl is what a process says of its group on a kernel that has none: resctrl is no filesystem then. Nothing, where the kernel
// could have it and the processor has not.
func noResctrl(r *rig) (want, missing string) {
	r.t.Helper()
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil || strings.Contains(string(text), "\tresctrl\n") {
		r.t.Errorf("resctrl is not mounted, and this machine does not say why: %v, filesystems %q", err, text)
	}
	want = "res:"
	if _, err := os.Stat("/proc/self/cpu_resctrl_groups"); err != nil {
		want = "absent"
	}
	return want, "resctrl is not in /proc/filesystems"
}

// firstCookie: a shell cannot ask for its core scheduling cookie, so the kernel is asked when the start has been answered.
func (r *rig) firstCookie() {
	r.t.Helper()
	if _, err := cookie(os.Getpid()); err != nil {
		why, proven := noCookies(err)
		if !proven {
			r.t.Errorf("core scheduling: %v, and this machine does not say why: %s", err, why)
		}
		r.t.Logf("core scheduling is not on this machine: %v: %s", err, why)
		r.unsupported(protocol.FeatureCoreSched)
		return
	}
	p := lsPod("first-table-cookie")
	p.Labels["koordinator.sh/core-sched-group-id"] = "first"
	run := r.pod(p)
	pid, err := r.pid(run, "main")
	if err != nil {
		r.t.Fatal(err)
	}
	if value, err := cookie(pid); err != nil || value == 0 {
		r.t.Errorf("cookie of a container that has just been started: %d, %v", value, err)
	}
}

// seen compares a container's words with a line of the table.
func (r *rig) seen(f first) {
	r.t.Helper()
	r.told(f.by, f.key, f.want, nil)
	if f.missing != "" {
		r.t.Logf("%s of %s: %q: %s", f.key, f.by.Pod.Name, f.want, f.missing)
		r.unsupported(f.feature)
	}
}

// unsupported fails unless koord-nri reports that this node does not have the feature.
func (r *rig) unsupported(feature protocol.Feature) {
	r.t.Helper()
	for _, f := range r.status().Features {
		if f.Feature == feature.String() {
			if f.State != "unsupported" || f.Detail == "" {
				r.t.Errorf("this kernel has no %s, koord-nri reports it as %s: %q", f.Feature, f.State, f.Detail)
			}
			return
		}
	}
	r.t.Errorf("koord-nri reports nothing of %s", feature)
}
