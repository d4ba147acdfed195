// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// use is what a process has used since its start.
type use struct {
	// own and children, those that were waited for, are 1/100 s of processor time.
	own, children int
	// voluntary and forced are context switches of the threads that live.
	voluntary, forced int
	threads           int
}

// spent is what a process used in a window, per second, and has at its end.
type spent struct {
	// cores and children are of one core.
	cores, children   float64
	voluntary, forced float64
	threads           int
	descriptors       int
	memory            resident
}

// leg is one agent's turn.
type leg struct {
	name string
	spent
	length time.Duration
	// helper is koord-nri beside our agent.
	helper spent
	asked
	// pods are those of which NodeMetric tells.
	pods int
}

func (l leg) cpu() float64 { return l.cores }

func (l leg) perReport(n int) float64 {
	return float64(n) / (float64(l.length) / float64(reportInterval))
}

// quiet reports whether there was at most one write per report interval: a window that begins just before a report has one
// more than it is long.
func (l leg) quiet() bool { return l.writes <= int(l.length/reportInterval)+1 }

// note writes the leg into the raw file.
func (l leg) note(r *report, number int) {
	r.note("leg %d: %s for %s: %s of a core, its children %s; switches/s %.1f own will, %.1f forced; %d threads, %d descriptors; %s", number, l.name,
		l.length.Round(time.Millisecond), percent(l.cores), percent(l.children), l.voluntary, l.forced, l.threads, l.descriptors, l.memory)
	r.note("       %d API writes, %d by dry run, %d reads: %s; %d pods in NodeMetric", l.writes, l.dry, l.reads, strings.Join(l.kinds, ", "), l.pods)
	if l.name == wayOurs {
		r.note("       koord-nri beside it: %s of a core; %s", percent(l.helper.cores), l.helper.memory)
	}
}

// leg starts an agent, waits until it has settled, and counts what it uses.
func (n *labNode) leg(ctx context.Context, name string) (l leg, err error) {
	l.name = name
	pid, helper, end, err := n.startAgent(ctx, name)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := wait(ctx, n.b.o.agent.settle); err != nil {
		return l, err
	}
	begin := time.Now()
	pids := []int{pid}
	if helper != 0 {
		pids = append(pids, helper)
	}
	var before []use
	for _, p := range pids {
		u, err := usedBy(p)
		if err != nil {
			return l, err
		}
		before = append(before, u)
	}
	if err := wait(ctx, n.b.o.agent.window); err != nil {
		return l, err
	}
	l.length = time.Since(begin)
	for i, p := range pids {
		s, err := spentSince(p, before[i], l.length)
		if err != nil {
			return l, err
		}
		if i == 0 {
			l.spent = s
		} else {
			l.helper = s
		}
	}
	if l.pods, err = n.reported(ctx); err != nil {
		return l, err
	}
	l.asked, err = audited(n.audit, users[name], begin, begin.Add(l.length))
	return l, err
}

// startUpstream starts upstream's koordlet as the lab runs it: the flags of its chart, without its NRI plugin, which has
// nothing to do on a quiet node.
func (n *labNode) startUpstream(ctx context.Context) (pid int, end func() error, err error) {
	u, err := n.cluster.StartUpstream(ctx, n.kubelet, cluster.UpstreamOptions{ReportSeconds: int(reportInterval / time.Second)})
	if err != nil {
		return 0, nil, err
	}
	return u.Pid(), u.Close, nil
}

func usedBy(pid int) (u use, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		u.own, u.children, err = statTicks(string(data))
	}
	if err != nil {
		return u, fmt.Errorf("read processor time of %d: %w", pid, err)
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return u, fmt.Errorf("list threads of %d: %w", pid, err)
	}
	u.threads = len(files)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		v, w := switches(string(data))
		u.voluntary, u.forced = u.voluntary+v, u.forced+w
	}
	return u, nil
}

// statTicks are utime + stime and cutime + cstime of /proc/PID/stat (proc_pid_stat(5)), in 1/100 s.
func statTicks(stat string) (own, children int, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("%q is too short", stat)
	}
	var v [4]int
	for i := range v {
		if v[i], err = strconv.Atoi(fields[11+i]); err != nil {
			return 0, 0, err
		}
	}
	return v[0] + v[1], v[2] + v[3], nil
}

// switches are a thread's context switches, by its own will and forced (proc_pid_status(5)); 0 where they are not told.
func switches(status string) (voluntary, forced int) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		switch {
		case err != nil:
		case name == "voluntary_ctxt_switches":
			voluntary = n
		case name == "nonvoluntary_ctxt_switches":
			forced = n
		}
	}
	return voluntary, forced
}

// spentSince is what a process used since before, and what it has now. Switches of threads that ended are lost.
func spentSince(pid int, before use, length time.Duration) (s spent, err error) {
	now, err := usedBy(pid)
	if err != nil {
		return s, err
	}
	if s.memory, err = residentOf(pid); err != nil {
		return s, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return s, fmt.Errorf("list descriptors of %d: %w", pid, err)
	}
	const ticks = 100 // a second, of every Linux on these machines
	per := length.Seconds()
	s.cores, s.children = float64(now.own-before.own)/ticks/per, float64(now.children-before.children)/ticks/per
	s.voluntary, s.forced = max(float64(now.voluntary-before.voluntary)/per, 0), max(float64(now.forced-before.forced)/per, 0)
	s.threads, s.descriptors = now.threads, len(open)
	return s, nil
}
