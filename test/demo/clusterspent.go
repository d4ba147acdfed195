// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

// spent is CPU time of a phase in seconds: what the best-effort pod used, and what the quota of its class was filled with, at the most.
type spent struct {
	name         string
	used, filled float64
}

const (
	// refill is how often a quota is filled, in seconds. It is filled when it is written, too.
	refill = float64(period) / 1e6
	// growth is the most by which koordlet raises the quota at a time, as a part of the node.
	growth = 0.1
	// ahead is what a CPU can have beyond the quota, in seconds: a slice of 5 ms of one that it had before, and until the next tick, 10 ms at most,
	// what it overdraws and what is not counted yet. The kernel takes back what was overdrawn, unless a quota is written meanwhile.
	ahead = 0.025
)

// spending adds up each phase:
//
//	filled = Σ quota × (time + refill, if it was written then) + first quota × refill + CPUs × ahead × (1 + times that it was written)
//
// where the quota between two samples is the larger of both. A sample that came late may have missed a growth and a cut each half second. The averages of
// a phase's end cannot be compared like that: a quota that was cut or written in their two seconds shows BE above what it may use.
func (r *recording) spending(cpus int) (out []spent) {
	for _, p := range r.phases() {
		first := max(p.begin, 1) // the time before the first sample is not known
		if first >= p.end {
			continue
		}
		s := spent{name: p.name, filled: r.samples[first-1].may*refill + float64(cpus)*ahead}
		for i := first; i < p.end; i++ {
			last, now := &r.samples[i-1], &r.samples[i]
			written := max(int((now.at-last.at)/every)-1, 0)
			most := max(last.may, now.may) + growth*float64(written*cpus)
			if now.may != last.may {
				written++
			}
			passed := (now.at - last.at).Seconds()
			s.used += now.be * passed
			s.filled += most*(passed+float64(written)*refill) + ahead*float64(written*cpus)
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
