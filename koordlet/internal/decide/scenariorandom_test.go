// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/sample"
)

var draws = flag.Uint64("draws", 0, "how many scenarios are drawn of each kind, more than the few that every run draws")

// drawn makes a scenario by chance: two minutes in which everybody's needs jump about, five in which they stand still, five in which nobody needs
// anything.
func drawn(t *testing.T, seed uint64) *scenario {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	nodes, cores := 1+r.IntN(2), 2<<r.IntN(6)
	cpus := cores * nodes
	line("Drawn by %d.\n-- node.yaml --", seed)
	line("{cpus: %d, numaNodes: %d, threads: %d, memory: 100Gi, tune: %v, for: 12m}", cpus, nodes, 1+r.IntN(2), r.IntN(2) == 0)
	line("-- strategy.yaml --")
	line("resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: %s, cpuSuppressThresholdPercent: %d, memoryEvictThresholdPercent: %d, %s}",
		[]string{"cpuset", "cfsQuota"}[r.IntN(2)], 50+r.IntN(40), 60+r.IntN(30),
		[]string{"cpuEvictPSIThresholdPercent: 80", "cpuEvictBESatisfactionLowerPercent: 20, cpuEvictBESatisfactionUpperPercent: 40", "cpuEvictTimeWindowSeconds: 30"}[r.IntN(3)])
	line("cpuBurstStrategy: {policy: %s, cfsQuotaBurstPercent: %d}", []string{"none", "auto", "cfsQuotaBurstOnly"}[r.IntN(3)], 100+r.IntN(300))
	line("resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, throttlingPercent: %d}}, beClass: {memoryQOS: {enable: true, wmarkRatio: %d}}}", r.IntN(100), r.IntN(96))
	line("-- strategy-off.yaml --\n{}\n-- strategy-on.yaml --\nresourceUsedThresholdWithBE: {enable: true, memoryEvictThresholdPercent: %d}", 60+r.IntN(30))
	line("cpuBurstStrategy: {policy: auto, cfsQuotaBurstPercent: %d, cfsQuotaBurstPeriodSeconds: %d}", 100+r.IntN(300), 10+r.IntN(100))
	line("-- pods.yaml --")
	var names []string
	for i, n := 0, 2+r.IntN(6); i < n; i++ {
		class, resources := "BE", fmt.Sprintf("requests: {kubernetes.io/batch-cpu: %q, kubernetes.io/batch-memory: %dGi}", fmt.Sprint(1000*(1+r.IntN(8))), 1+r.IntN(20))
		if i == 0 || r.IntN(2) == 0 {
			class, resources = "LS", fmt.Sprintf("requests: {cpu: %q, memory: 1Gi}", fmt.Sprint(1+r.IntN(4)))
			if r.IntN(2) == 0 {
				resources += fmt.Sprintf(", limits: {cpu: %q, memory: %dGi}", fmt.Sprint(4+r.IntN(4)), 4+r.IntN(20))
			}
		}
		annotations := ""
		if i == 1 && r.IntN(2) == 0 {
			class, resources = "LSR", `requests: {cpu: "2", memory: 2Gi}, limits: {cpu: "2", memory: 2Gi}`
			annotations = fmt.Sprintf(`, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset": "%d-%d"}'}`, cpus-2, cpus-1)
		}
		name := fmt.Sprintf("%s%d", strings.ToLower(class), i)
		names = append(names, name)
		if i > 0 {
			line("---")
		}
		line("metadata: {name: %s, labels: {koordinator.sh/qosClass: %s}%s}", name, class, annotations)
		line("spec: {priority: %d, terminationGracePeriodSeconds: %d, containers: [{name: c, resources: {%s}}]}", map[string]int{"LS": 9500, "LSR": 9500, "BE": 5500}[class], 1+r.IntN(30), resources)
	}
	line("-- load.txt --")
	came, went := map[string]bool{}, map[string]bool{}
	for at := 0; at <= 120; at += 1 + r.IntN(20) {
		name := names[r.IntN(len(names))]
		switch r.IntN(8) {
		case 6, 7:
			if strings.HasPrefix(name, "ls") {
				line("%ds %s stall %d%% while be > %.1f", at, name, 10+r.IntN(60), r.Float64()*float64(cpus)/2)
				line("%ds %s calls", at, name)
			}
		case 4:
			line("%ds strategy %s", at, []string{"off", "on"}[r.IntN(2)])
		case 5:
			if at > 20 && !came[name] {
				came[name] = true
				line("%ds %s arrives", at, name)
			} else if !went[name] && at > 60 {
				went[name] = true
				line("%ds %s ends", at+30, name)
			}
		case 0, 1:
			line("%ds %s cpu %.2f", at, name, r.Float64()*float64(cpus))
		case 2:
			line("%ds %s memory %dGi", at, name, r.IntN(30))
		case 3:
			line("%ds %s cache %dGi", at, name, r.IntN(30))
		}
	}
	for _, name := range names {
		line("121s %s stall 0", name)
		line("420s %s cpu 0\n420s %s memory 0\n420s %s cache 0", name, name, name)
	}
	line("-- want.txt --\n0s node cpu >= 0")
	s, err := parseScenario(fmt.Sprint(seed), []byte(b.String()))
	if err != nil {
		t.Fatalf("%v:\n%s", err, b.String())
	}
	return s
}

// TestEverythingSettles: whatever happens, nothing moves any more a few minutes after it has stopped happening, nobody leaves who is not best
// effort, and when nobody needs anything each value is as it was without us, and best effort may use all that the threshold leaves. Beside others whose
// use stands still best effort never uses more than the threshold leaves. So it is where
// every tenth figure of the first three minutes cannot be read, too, and none at all in every twentieth second.
func TestEverythingSettles(t *testing.T) {
	t.Parallel()
	for seed := range max(25, *draws) {
		s := drawn(t, seed)
		p := newPaper(t, s)
		if seed%2 == 1 {
			p.lost = loses(seed, 180)
		}
		others, still, asked := 0.0, 0, p.facts.View.Strategy
		for second := range 720 {
			p.tick(t, second)
			if is := p.use.node - p.use.be; is > others-0.01 && is < others+0.01 && asked == p.facts.View.Strategy {
				still++
			} else {
				others, still, asked = is, 0, p.facts.View.Strategy
			}
			if most := p.bears(others); still >= 3 && p.lost == nil && p.use.be > most {
				t.Fatalf("drawn by %d: best effort uses %.2f CPUs in second %d beside %.2f of others, want %.2f at most", seed, p.use.be, second, others, most)
			}
			if second == 360 || second == 660 {
				p.trace.Reset()
			}
			if second == 419 && p.trace.Len() > 0 {
				t.Errorf("drawn by %d: four minutes later it still moves:\n%s", seed, p.trace.String())
			}
		}
		if p.trace.Len() > 0 {
			t.Errorf("drawn by %d: four minutes after everything has ended it still moves:\n%s", seed, p.trace.String())
		}
		for _, pod := range p.pods {
			if strings.HasPrefix(pod.name, "ls") && pod.leaving {
				t.Errorf("drawn by %d: %s was evicted", seed, pod.name)
			}
		}
		for key, text := range p.told {
			if text != "" && (strings.HasPrefix(key, "quota ") || strings.HasPrefix(key, "high ") || strings.HasPrefix(key, "cap ")) {
				t.Errorf("drawn by %d: at the end %s: %s", seed, key, text)
			}
		}
		least := float64(s.node.CPUs)
		if now := p.facts.View.Strategy.ResourceUsedThresholdWithBE; *now.Enable {
			least = least*float64(*now.CPUSuppressThresholdPercent)/100 - 1 // a quota does not move for less than a hundredth
		}
		if p.limit() < least {
			t.Errorf("drawn by %d: at the end best effort may use %v of %d CPUs", seed, p.limit(), s.node.CPUs)
		}
	}
}

// bears is what best effort may use beside others whose use has stood for some seconds: what the threshold leaves, rounded up to a CPU or to the
// hundredth for which a quota does not move, two CPUs at least; everything where nothing is suppressed.
func (p *paper) bears(others float64) float64 {
	cpus := float64(p.s.node.CPUs)
	t := p.facts.View.Strategy.ResourceUsedThresholdWithBE
	if !*t.Enable {
		return cpus
	}
	return max(float64(*t.CPUSuppressThresholdPercent)/100*cpus-others, 1) + max(1, cpus/100)
}

// loses has figures lost by chance.
func loses(seed uint64, until int) func(second int, s *sample.Sample) bool {
	r, none := rand.New(rand.NewPCG(seed, 3)), -1
	return func(second int, _ *sample.Sample) bool {
		if second != none && r.IntN(200) == 0 { // some ten figures are read in a second
			none = second
		}
		return second < until && (second == none || r.IntN(10) == 0)
	}
}

// TestARestartDecidesTheSame: an agent that begins anew every few seconds, with the state that the one before has written, decides what one does that
// goes on.
func TestARestartDecidesTheSame(t *testing.T) {
	t.Parallel()
	for seed := range max(8, *draws) {
		s := drawn(t, seed)
		one, many := newPaper(t, s), newPaper(t, s)
		for second := range 600 {
			if second%7 == 0 {
				data, err := json.Marshal(many.state)
				if err != nil {
					t.Fatal(err)
				}
				many.state = decide.State{}
				if err := json.Unmarshal(data, &many.state); err != nil {
					t.Fatal(err)
				}
			}
			one.tick(t, second)
			many.tick(t, second)
		}
		if d := cmp.Diff(one.trace.String(), many.trace.String()); d != "" || one.trace.Len() == 0 {
			t.Errorf("drawn by %d (-one +many):\n%s", seed, d)
		}
	}
}
