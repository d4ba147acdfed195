// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import "github.com/koord-rt/koord-rt/test/lab/cgroups"

// spent is CPU time of a phase in seconds: what the best-effort pod used, and what the quota of its class was filled with, at the most.
type spent struct {
	name         string
	used, filled float64
}

const (
	// refill is how often a quota is filled, in seconds.
	refill = float64(period) / 1e6
	// growth is the most by which koordlet raises the quota at a time, as a part of the node.
	growth = 0.1
)

// spending adds up each phase: what the quota was filled with from sample to sample (cgroups.Quota), and what it had at the first. A sample that came
// late may have missed a growth and a cut each half second. The averages of a phase's end cannot be compared like that: a quota that was cut or written in
// their two seconds shows BE above what it may use.
func (r *recording) spending(cpus int) (out []spent) {
	for _, p := range r.phases() {
		first := max(p.begin, 1) // the time before the first sample is not known
		if first >= p.end {
			continue
		}
		s := spent{name: p.name, filled: cgroups.FilledOnce(r.samples[first-1].may*refill, cpus)}
		for i := first; i < p.end; i++ {
			last, now := &r.samples[i-1], &r.samples[i]
			passed := now.at - last.at
			s.used += now.be * passed.Seconds()
			s.filled += cgroups.Quota{
				Before: last.may * refill, Now: now.may * refill, Periods: passed.Seconds() / refill,
				Missed: max(int(passed/every)-1, 0), Growth: growth * float64(cpus) * refill, CPUs: cpus,
			}.Filled()
		}
		out = append(out, s)
	}
	return out
}

// spendingTable prints it.
func (r *recording) spendingTable(s *screen, cpus int) {
	var rows [][]string
	for _, p := range r.spending(cpus) {
		rows = append(rows, []string{p.name, amount(p.used), amount(p.filled)})
	}
	s.table([]string{"CPU seconds", "BE used", "its quota was filled with, at most"}, rows, []string{"", "", bold + ";" + green})
}
