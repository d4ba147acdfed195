// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// sample is one look at the kernel, in CPUs.
type sample struct {
	// at is the time since the recording began.
	at time.Duration
	// ls and be are what the two pods used since the sample before.
	ls, be float64
	// may is what the quota of the best-effort class allows; +Inf without one.
	may float64
	// lent is the node's batch-cpu; 0 where there is no cluster.
	lent float64
	// others is what all but the two pods used since the sample before.
	others float64
}

// meter reads what both pods use and what the best-effort class may use, from their cgroups.
type meter struct {
	tree cgroups.Tree
	// ls and be hold the pods' usage (on v1 of cpuacct), class the quota of Kubernetes' BestEffort class.
	ls, be, class string
	// last is the look before: when, and the CPU time until then.
	last           time.Time
	lsTime, beTime time.Duration
	busyTime       time.Duration // of the whole machine
	began          time.Time
	// pods are both, for people.
	pods string
	// lent asks what the node lends; nil where there is no cluster.
	lent func() (float64, error)
}

// newMeter takes its first look.
func newMeter(k *kubelet.Kubelet, tree cgroups.Tree, ls, be *kubelet.Running) (*meter, error) {
	m := &meter{
		tree: tree, ls: k.PodDir(ls, "cpuacct"), be: k.PodDir(be, "cpuacct"), class: filepath.Dir(k.PodDir(be, "cpu")), began: time.Now(),
		pods: fmt.Sprintf("%s (LS) and %s (BE)", ls.Pod.Name, be.Pod.Name),
	}
	_, err := m.read()
	return m, err
}

// read takes a look.
func (m *meter) read() (sample, error) {
	lent := 0.0
	if m.lent != nil { // first, since an API server may take its time: what comes from the kernel is of one moment
		var err error
		if lent, err = m.lent(); err != nil {
			return sample{}, err
		}
	}
	ls, err := m.tree.CPUTime(m.ls)
	if err != nil {
		return sample{}, err
	}
	be, err := m.tree.CPUTime(m.be)
	if err != nil {
		return sample{}, err
	}
	now := time.Now() // of what was used: on a busy machine the rest may come later
	may, err := m.allowed()
	if err != nil {
		return sample{}, err
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return sample{}, fmt.Errorf("read CPU time of the machine: %w", err)
	}
	busy, err := busyTime(string(text))
	if err != nil {
		return sample{}, err
	}
	s := sample{at: now.Sub(m.began), may: may, lent: lent}
	if passed := now.Sub(m.last).Seconds(); !m.last.IsZero() && passed > 0 {
		s.ls, s.be = (ls-m.lsTime).Seconds()/passed, (be-m.beTime).Seconds()/passed
		s.others = max((busy-m.busyTime).Seconds()/passed-s.ls-s.be, 0)
	}
	m.last, m.lsTime, m.beTime, m.busyTime = now, ls, be, busy
	return s, nil
}

// busyTime is for how long the CPUs of /proc/stat were not idle: "cpu  user nice system idle iowait irq softirq steal guest guest_nice" in
// hundredths of a second (proc_stat(5)); guest is a part of user. What a hypervisor stole was nobody's here either.
func busyTime(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("read CPU time of the machine: /proc/stat begins with %q", line)
	}
	var busy time.Duration
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time of the machine: %w", err)
		}
		busy += time.Duration(n) * 10 * time.Millisecond
	}
	return busy, nil
}

// usageFile is where a pod's CPU time stands, for people.
func (m *meter) usageFile() string {
	if m.tree.V2() {
		return "cpu.stat"
	}
	return "cpuacct.usage"
}

// quotaFile is where the quota of a class stands, for people.
func (m *meter) quotaFile() string {
	if m.tree.V2() {
		return "cpu.max"
	}
	return "cpu.cfs_quota_us"
}

// allowed is quota / period of the class: cpu.max, on v1 cpu.cfs_quota_us and cpu.cfs_period_us.
func (m *meter) allowed() (float64, error) {
	text, err := cgroups.Read(m.class, m.quotaFile())
	if err == nil && !m.tree.V2() {
		var period string
		period, err = cgroups.Read(m.class, "cpu.cfs_period_us")
		text += " " + period
	}
	if err != nil {
		return 0, err
	}
	return quotient(text)
}

// quotient reads "21000 100000", "max 100000" and "-1 100000".
func quotient(text string) (float64, error) {
	quota, period, _ := strings.Cut(text, " ")
	if quota == "max" || quota == "-1" {
		return math.Inf(1), nil
	}
	q, err := strconv.ParseFloat(quota, 64)
	if err != nil {
		return 0, fmt.Errorf("read quota %q: %w", text, err)
	}
	p, err := strconv.ParseFloat(period, 64)
	if err != nil || p <= 0 {
		return 0, fmt.Errorf("read quota %q: no period", text)
	}
	return q / p, nil
}
