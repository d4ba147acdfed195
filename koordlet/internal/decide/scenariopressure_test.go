// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// waiting is a node of 32 CPUs of which best effort may use 13.8, and wants more, beside a service that waits for CPUs: in seconds of the load's lines.
func waiting(t *testing.T, r *rand.Rand, lines string) *paper {
	t.Helper()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Drawn.\n-- node.yaml --\n{cpus: 32, numaNodes: 2, threads: 2, memory: 128Gi, for: 40m}")
	line("-- strategy.yaml --\nresourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: %s}", []string{"cpuset", "cfsQuota"}[r.IntN(2)])
	line("-- pods.yaml --\nmetadata: {name: web, labels: {koordinator.sh/qosClass: LS}}\nspec: {containers: [{name: app, resources: {requests: {cpu: \"8\"}}}]}")
	load := "0s web cpu 7\n"
	for i := range 1 + r.IntN(3) {
		line("---\nmetadata: {name: job%d, labels: {koordinator.sh/qosClass: BE}}\nspec: {containers: [{name: work}]}", i)
		load += fmt.Sprintf("0s job%d cpu %d\n", i, 14+r.IntN(28))
	}
	s, err := parseScenario("drawn", []byte(b.String()+"-- load.txt --\n"+load+lines+"-- want.txt --\n0s node cpu >= 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	return newPaper(t, s)
}

// watched plays it for forty minutes and returns what best effort used on average in the latter half, in CPUs, and in which part of its seconds it used
// more than bad.
func watched(t *testing.T, p *paper, bad float64) (used, above float64) {
	t.Helper()
	for second := range 2400 {
		p.tick(t, second)
		if second >= 1200 {
			used += p.use.be / 1200
			if p.use.be > bad {
				above += 1.0 / 1200
			}
		}
	}
	return used, above
}

// TestServicesDoNotWaitForBestEffort: a service waits whenever best effort uses more than some CPUs. Nobody knows how many, and it would wait again and
// again to find that out: it does in three seconds of a hundred at most, and best effort has half of what it may have.
func TestServicesDoNotWaitForBestEffort(t *testing.T) {
	t.Parallel()
	for seed := range max(5, *draws) {
		r := rand.New(rand.NewPCG(seed, 11))
		bad, much := 2.2+r.Float64()*11, 12+r.IntN(60)
		p := waiting(t, r, fmt.Sprintf("60s web stall %d%% while be > %.2f\n", much, bad))
		if used, above := watched(t, p, bad); above > 0.03 || used < bad/2 {
			t.Errorf("drawn by %d: it waits %d%% of the time above %.1f CPUs, which is in %.1f%% of the seconds; best effort has %.1f CPUs", seed, much, bad, above*100, used)
		}
	}
}

// TestBestEffortDoesNotStarve: a service waits now and then, whatever best effort does, up to half of the time, and best effort has a tenth of what it may
// use all the same, where it had nothing once.
func TestBestEffortDoesNotStarve(t *testing.T) {
	t.Parallel()
	for seed := range max(5, *draws) {
		r := rand.New(rand.NewPCG(seed, 11))
		period, long, much := 10+r.IntN(150), 1+r.IntN(12), 12+r.IntN(60)
		var lines strings.Builder
		for at := 60; at < 2400; at += period {
			fmt.Fprintf(&lines, "%ds web stall %d%%\n%ds web calls\n%ds web stall 0\n", at, much, at, at+min(long, period-1))
		}
		if used, _ := watched(t, waiting(t, r, lines.String()), 0); used < 13.8/10 {
			t.Errorf("drawn by %d: it waits %d%% of the time for %d s every %d s, and best effort has %.1f CPUs", seed, much, long, period, used)
		}
	}
}
