// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// shared is a strategy that divides 100 Mbit/s: LS has half of it and may have all, BE a tenth and at most a fifth; the system
// has the rest.
const shared = `
systemStrategy: {totalNetworkBandwidth: 100M}
resourceQOSStrategy:
  lsClass: {networkQOS: {enable: true, egressRequest: 50, ingressRequest: 50}}
  beClass: {networkQOS: {enable: true, egressRequest: 10, egressLimit: 20M, ingressRequest: 10, ingressLimit: 20M}}
`

// The same in bytes per second, with the limit of the pod be-slow.
const (
	lsShare, beShare, beLimit, slowLimit = 50e6 / 8, 10e6 / 8, 20e6 / 8, 8e6 / 8
	floodFor                             = 2 * time.Second
	// slack is what queues and bursts may give at once.
	slack = 1 << 17
)

// sharedClasses is what tc shows of it: parent, guaranteed, most.
var sharedClasses = map[string]string{
	"4b52:1": "- 100Mbit 100Mbit", "4b52:2": "4b52:1 40Mbit 100Mbit", "4b52:4": "4b52:1 50Mbit 100Mbit", "4b52:5": "4b52:1 10Mbit 20Mbit",
}

// TestHostNetwork is koordlet with real pods on an uplink: containerd, its pods and koordlet are in a network namespace whose
// default route leaves by a veth pair, so the machine's own links are never touched. What a NodeSLO asks for stands in the kernel
// as tc shows it, floods of the pods get what it says, and when nobody asks any more, or after koordctl restore, qdiscs, classes,
// filters and links are as before, byte for byte: as before us, or as somebody has made them since.
func TestHostNetwork(t *testing.T) {
	n := newUplink(t)
	n.ls, n.be = n.pod(openPod("net-ls", "LS")), n.pod(openPod("net-be", "BE"))
	slow := openPod("net-be-slow", "BE")
	slow.Annotations = map[string]string{"koordinator.sh/networkQOS": `{"ingressLimit":"8M","egressLimit":"8M"}`}
	n.slow = n.pod(slow)

	// What somebody has set is what has to come back.
	n.tool("tc", "qdisc", "add", "dev", uplinkName, "root", "pfifo", "limit", "77")
	before := n.carried()
	n.free()
	n.start(shared)
	n.divided()
	n.podsComeAndGo()
	n.floods()
	n.disturbed()
	n.a.strategy("cpuBurstStrategy: {policy: none}\n")
	n.back("without a strategy for it", before)

	// Now somebody sets something else, while koordlet has given the link back, and again while it is dead and the shares stand.
	n.tool("tc", "qdisc", "replace", "dev", uplinkName, "root", "pfifo", "limit", "55")
	n.tool("tc", "qdisc", "add", "dev", uplinkName, "clsact")
	second := n.links()
	n.a.strategy(shared)
	n.divided()
	n.a.end(syscall.SIGKILL)
	out, err := n.ctl("restore")
	if err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	n.back("after kill -9 and restore", second)
	n.a.start()
	n.divided()
	n.a.end(syscall.SIGKILL)
	n.tool("tc", "qdisc", "replace", "dev", uplinkName, "root", "pfifo", "limit", "99")
	third := slices.Clone(second)
	*n.root(third) = *n.root(n.links())
	n.a.start()
	n.divided()
	n.a.strategy("cpuBurstStrategy: {policy: none}\n")
	n.back("without a strategy for it, again", third)

	// koordlet is ended with the shares in force.
	n.a.strategy(shared)
	n.divided()
	n.a.end(syscall.SIGTERM)
	n.divided() // while no koordlet runs, the shares stay
	if out, err = n.ctl("restore"); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	n.back("after restore", third)
	if again, err := n.ctl("restore"); err != nil || !strings.Contains("\n"+again, "\n0 restored, ") {
		t.Errorf("a second restore finds something to do: %v\n%s", err, again)
	}
}

// divided waits until both directions have the shares, and lead each pod by its address to its class.
func (n *uplink) divided() {
	n.t.Helper()
	for _, d := range n.directions() {
		n.eventually(30*time.Second, func() error {
			classes := n.classes(d.device)
			for handle, want := range sharedClasses {
				if classes[handle] != want {
					return fmt.Errorf("%s: class %s is %q, want %q; all: %v", d.device, handle, classes[handle], want, classes)
				}
			}
			to := n.filters(d)
			own := to[n.slow.Addresses[0]] // its class has the next free number
			leads := map[string]string{n.ls.Addresses[0]: "4b52:14", n.be.Addresses[0]: "4b52:15", n.slow.Addresses[0]: own}
			if !maps.Equal(to, leads) {
				return fmt.Errorf("%s: filters lead %v, want %v", d.device, to, leads)
			}
			if c := strings.Fields(classes[own]); len(c) != 3 || c[0] != "4b52:5" || c[2] != "8Mbit" {
				return fmt.Errorf("%s: class %s of the pod with a limit is %q, want one of 8Mbit below 4b52:5", d.device, own, classes[own])
			}
			for leaf, above := range map[string]string{"4b52:14": "4b52:4", "4b52:15": "4b52:5"} {
				if !strings.HasPrefix(classes[leaf], above+" ") {
					return fmt.Errorf("%s: leaf %s is %q, want it below %s", d.device, leaf, classes[leaf], above)
				}
			}
			return nil
		})
	}
}

// podsComeAndGo: a pod's address leads to its class while the pod is there.
func (n *uplink) podsComeAndGo() {
	n.t.Helper()
	late := n.pod(openPod("net-late", "BE"))
	leads := func(want string) {
		n.t.Helper()
		for _, d := range n.directions() {
			n.eventually(20*time.Second, func() error {
				if got := n.filters(d)[late.Addresses[0]]; got != want {
					return fmt.Errorf("%s: the filter of %s leads to %q, want %q", d.device, late.Addresses[0], got, want)
				}
				return nil
			})
		}
	}
	leads("4b52:15")
	if err := n.kube.StopPod(n.t.Context(), late); err != nil {
		n.t.Fatal(err)
	}
	leads("")
}

// free: without shares a best-effort pod gets through far more than it will be given, so the limits that are measured later are not
// this machine's own.
func (n *uplink) free() {
	n.t.Helper()
	for _, d := range n.directions() {
		best := 0.0
		for range 5 { // who sends may have had no CPU
			got, _ := n.flood(time.Second, n.flow(d, n.be))
			if best = max(best, got[0]); best >= 2*beLimit {
				break
			}
		}
		if best < 2*beLimit {
			n.t.Fatalf("%s: %.0f bytes arrived within a second without any limit: this machine is too slow for the test", d.name, best)
		}
	}
}

// floods: best-effort pods alone get their limits and no more, though nobody else wants anything; beside a flood of LS they keep
// what is guaranteed, and LS has its share. What counts is what arrives at the other end.
func (n *uplink) floods() {
	n.t.Helper()
	for _, d := range n.directions() {
		ls, be, slow := n.flow(d, n.ls), n.flow(d, n.be), n.flow(d, n.slow)
		most := func(what string, got, rate, elapsed float64) {
			n.t.Helper()
			if limit := rate*elapsed + slack; got > limit {
				n.t.Errorf("%s: %s: %.0f bytes arrived in %.2f s, the limit allows %.0f", d.device, what, got, elapsed, limit)
			}
		}
		least := func(what string, got, rate float64) { // nobody sends after floodFor, however late this process gets on
			n.t.Helper()
			if got < rate*floodFor.Seconds()/2 {
				n.t.Errorf("%s: %s: %.0f bytes arrived, not half of %.0f bytes/s", d.device, what, got, rate)
			}
		}
		got, elapsed := n.flood(floodFor, be, slow)
		n.t.Logf("%s: %.2f s of BE alone: %.0f bytes arrived, and %.0f of the pod with a limit", d.device, elapsed, got[0], got[1])
		most("BE alone", got[0]+got[1], beLimit, elapsed)
		least("BE alone", got[0]+got[1], beLimit)
		most("the pod with a limit", got[1], slowLimit, elapsed)
		got, elapsed = n.flood(floodFor, ls, be, slow)
		n.t.Logf("%s: %.2f s of all: LS %.0f bytes, BE %.0f, and %.0f of the pod with a limit", d.device, elapsed, got[0], got[1], got[2])
		most("BE beside LS", got[1]+got[2], beLimit, elapsed)
		least("BE beside LS", got[1]+got[2], beShare)
		least("LS", got[0], lsShare)
		if got[0] < 2*(got[1]+got[2]) {
			n.t.Errorf("%s: LS got %.0f bytes beside %.0f of BE, want twice as much at least", d.device, got[0], got[1]+got[2])
		}
		if bytes := n.a.figure("koord_rt_koordlet_network_bytes_total", `class="be"`, `direction="`+d.name+`"`); bytes < got[1]+got[2] {
			n.t.Errorf("%s: koordlet counts %.0f bytes of BE, %.0f arrived", d.device, bytes, got[1]+got[2])
		}
	}
}

// carried waits for every link's carrier, which the kernel tells up to a second after the other end is up, and returns the links.
func (n *uplink) carried() (links []string) {
	n.t.Helper()
	n.eventually(10*time.Second, func() error {
		links = n.links()
		for _, line := range links {
			if strings.Contains(line, "NO-CARRIER") || strings.Contains(line, " state DOWN ") {
				return fmt.Errorf("no carrier: %s", line)
			}
		}
		return nil
	})
	return links
}

// root is the line of the pfifo that stands at the uplink's root.
func (n *uplink) root(links []string) *string {
	n.t.Helper()
	i := slices.IndexFunc(links, func(line string) bool {
		return strings.HasPrefix(line, "qdisc pfifo ") && strings.Contains(line, " dev "+uplinkName+" root ")
	})
	if i < 0 {
		n.t.Fatalf("no pfifo at the root of %s:\n%s", uplinkName, strings.Join(links, "\n"))
	}
	return &links[i]
}

// back waits until the links are as they were.
func (n *uplink) back(when string, want []string) {
	n.t.Helper()
	n.eventually(30*time.Second, func() error {
		now := n.links()
		if slices.Equal(now, want) {
			return nil
		}
		return fmt.Errorf("%s the links are\n%s\nbefore they were\n%s", when, strings.Join(now, "\n"), strings.Join(want, "\n"))
	})
}

// flow is a pod's in a direction.
func (n *uplink) flow(d direction, run *kubelet.Running) *flow {
	n.t.Helper()
	if n.flows[run] == nil {
		pid, err := n.pid(run, "main")
		if err != nil {
			n.t.Fatal(err)
		}
		n.flows[run] = n.between(pid, run.Addresses[0], n.world, worldAddress)
	}
	return n.flows[run][d.name]
}
