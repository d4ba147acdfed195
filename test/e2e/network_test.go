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
)

// What is divided, in percent of the link: LS has half of it and may have all, BE a tenth and at most a fifth; the system has the rest.
// The pod net-be-slow has a limit of its own.
const lsShare, beShare, beLimit, slowLimit = 50, 10, 20, 4

// Our classes as tc names them, with the leaves of pods without a limit.
const (
	classAll, classSystem, classLS, classBE = "4b52:1", "4b52:2", "4b52:4", "4b52:5"
	leafLS, leafBE                          = "4b52:14", "4b52:15"
)

// unshared is a strategy without shares.
const unshared = "cpuBurstStrategy: {policy: none}\n"

// shared is the strategy that divides the link so, by shares and by rates.
func (n *uplink) shared() string {
	return fmt.Sprintf(`
systemStrategy: {totalNetworkBandwidth: %[1]dM}
resourceQOSStrategy:
  lsClass: {networkQOS: {enable: true, egressRequest: %[2]d, ingressRequest: %[2]d}}
  beClass: {networkQOS: {enable: true, egressRequest: %[3]d, egressLimit: %[4]dk, ingressRequest: %[3]d, ingressLimit: %[4]dk}}
`, n.total, lsShare, beShare, n.kbit(beLimit))
}

// kbit is so many percent of the link in kbit/s, bits as tc writes it, part in bytes per second.
func (n *uplink) kbit(percent int) int { return n.total * percent * 10 }

func (n *uplink) bits(percent int) string {
	if kbit := n.kbit(percent); kbit%1000 != 0 {
		return fmt.Sprintf("%dKbit", kbit)
	}
	return fmt.Sprintf("%dMbit", n.kbit(percent)/1000)
}

func (n *uplink) part(percent int) float64 { return float64(n.kbit(percent)) * 1000 / 8 }

// classesWanted is what tc shows of it: parent, guaranteed, most.
func (n *uplink) classesWanted() map[string]string {
	all := n.bits(100)
	return map[string]string{
		classAll: "- " + all + " " + all, classSystem: classAll + " " + n.bits(100-lsShare-beShare) + " " + all,
		classLS: classAll + " " + n.bits(lsShare) + " " + all, classBE: classAll + " " + n.bits(beShare) + " " + n.bits(beLimit),
	}
}

// TestHostNetwork is koordlet with real pods on an uplink: containerd, its pods and koordlet are in a network namespace whose
// default route leaves by a veth pair, so the machine's own links are never touched. What a NodeSLO asks for stands in the kernel
// as tc shows it, floods of the pods get what it says, and when nobody asks any more, or after koordctl restore, qdiscs, classes,
// filters and links are as before, byte for byte: as before us, or as somebody has made them since.
func TestHostNetwork(t *testing.T) { newUplink(t).networkQoS() }

// networkQoS goes through all of it. An emulated machine shows that its kernel makes no difference, and leaves out what is measured by the clock.
func (n *uplink) networkQoS() {
	n.t.Helper()
	n.ls, n.be = n.pod(openPod("net-ls", "LS")), n.pod(openPod("net-be", "BE"))
	slow := openPod("net-be-slow", "BE")
	slow.Annotations = map[string]string{"koordinator.sh/networkQOS": fmt.Sprintf(`{"ingressLimit":"%[1]dk","egressLimit":"%[1]dk"}`, n.kbit(slowLimit))}
	n.slow = n.pod(slow)

	// What somebody has set is what has to come back.
	n.tool("tc", "qdisc", "add", "dev", uplinkName, "root", "pfifo", "limit", "77")
	before := n.carried()
	if !emulated() {
		n.free()
	}
	n.start(n.shared())
	n.divided()
	n.podsComeAndGo()
	n.floods()
	if !emulated() {
		n.disturbed()
	}
	n.a.strategy(unshared)
	n.back("without a strategy for it", before)
	if !emulated() { // a guest has that in kernel/tc's own tests
		before = n.somebodyElse()
	}

	// koordlet is ended with the shares in force.
	n.a.strategy(n.shared())
	n.divided()
	n.a.end(syscall.SIGTERM)
	n.divided() // while no koordlet runs, the shares stay
	out, err := n.ctl("restore")
	if err != nil {
		n.t.Fatalf("restore: %v\n%s", err, out)
	}
	n.back("after restore", before)
	if again, err := n.ctl("restore"); err != nil || !strings.Contains("\n"+again, "\n0 restored, ") {
		n.t.Errorf("a second restore finds something to do: %v\n%s", err, again)
	}
}

// somebodyElse sets something else, while koordlet has given the link back, and again while it is dead and the shares stand. What came
// last has to come back, and is returned.
func (n *uplink) somebodyElse() (last []string) {
	n.t.Helper()
	n.tool("tc", "qdisc", "replace", "dev", uplinkName, "root", "pfifo", "limit", "55")
	n.tool("tc", "qdisc", "add", "dev", uplinkName, "clsact")
	second := n.links()
	n.a.strategy(n.shared())
	n.divided()
	n.a.end(syscall.SIGKILL)
	out, err := n.ctl("restore")
	if err != nil {
		n.t.Fatalf("restore: %v\n%s", err, out)
	}
	n.back("after kill -9 and restore", second)
	n.a.start()
	n.divided()
	n.a.end(syscall.SIGKILL)
	n.tool("tc", "qdisc", "replace", "dev", uplinkName, "root", "pfifo", "limit", "99")
	last = slices.Clone(second)
	*n.root(last) = *n.root(n.links())
	n.a.start()
	n.divided()
	n.a.strategy(unshared)
	n.back("without a strategy for it, again", last)
	return last
}

// divided waits until both directions have the shares, and lead each pod by its address to its class.
func (n *uplink) divided() {
	n.t.Helper()
	for _, d := range n.directions() {
		n.eventually(30*time.Second, func() error {
			classes := n.classes(d.device)
			for handle, want := range n.classesWanted() {
				if classes[handle] != want {
					return fmt.Errorf("%s: class %s is %q, want %q; all: %v", d.device, handle, classes[handle], want, classes)
				}
			}
			to := n.filters(d)
			own := to[n.slow.Addresses[0]] // its class has the next free number
			leads := map[string]string{n.ls.Addresses[0]: leafLS, n.be.Addresses[0]: leafBE, n.slow.Addresses[0]: own}
			if !maps.Equal(to, leads) {
				return fmt.Errorf("%s: filters lead %v, want %v", d.device, to, leads)
			}
			if c := strings.Fields(classes[own]); len(c) != 3 || c[0] != classBE || c[2] != n.bits(slowLimit) {
				return fmt.Errorf("%s: class %s of the pod with a limit is %q, want one of %s below %s", d.device, own, classes[own], n.bits(slowLimit), classBE)
			}
			for leaf, above := range map[string]string{leafLS: classLS, leafBE: classBE} {
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
	leads(leafBE)
	if err := n.kube.StopPod(n.t.Context(), late); err != nil {
		n.t.Fatal(err)
	}
	leads("")
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
