// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// How long is sent. An emulated machine may get next to no CPU: there it goes on until enough has arrived, since what is judged are bytes.
const (
	floodFor      = 2 * time.Second
	floodEmulated = time.Minute
)

// What a class may send at once beyond its rate, by koordlet's bursts, and what may have left its class and not been heard of yet: a full
// receive buffer.
const (
	bursts  = 1 << 16
	unheard = 1 << 17
)

// free: without shares a best-effort pod gets through far more than it will be given, so the limits that are measured later are not
// this machine's own.
func (n *uplink) free() {
	n.t.Helper()
	for _, d := range n.directions() {
		best, want := 0.0, 2*n.part(beLimit)
		for range 5 { // who sends may have had no CPU
			best = max(best, n.flood(d, time.Second, nil, n.flow(d, n.be)).arrived[0])
			if best >= want {
				break
			}
		}
		if best < want {
			n.t.Fatalf("%s: %.0f bytes arrived within a second without any limit: this machine is too slow for the test", d.name, best)
		}
	}
}

// floods: best-effort pods alone get their limits and no more, though nobody else wants anything; beside a flood of LS they keep
// what is guaranteed, and LS has its share. What arrives at the other end has gone through the class of its pod, by the kernel's
// count, and that class through its limit, which held it back.
func (n *uplink) floods() {
	n.t.Helper()
	for _, d := range n.directions() {
		ls, be, slow := n.flow(d, n.ls), n.flow(d, n.be), n.flow(d, n.slow)
		own := n.filters(d)[n.slow.Addresses[0]]
		least := func(percent int) float64 { return n.part(percent) * floodFor.Seconds() / 2 }

		f := n.flood(d, floodFor, func(got []float64) bool { return got[0]+got[1] >= least(beLimit) }, be, slow)
		f.told("BE alone")
		f.went(leafBE, f.arrived[0])
		f.went(own, f.arrived[1])
		f.held(classBE, beLimit)
		f.held(own, slowLimit)
		if sent := f.sent(classLS); sent > bursts {
			n.t.Errorf("%s: %.0f bytes are counted for LS, which sent nothing", d.device, sent)
		}

		f = n.flood(d, floodFor, func(got []float64) bool { return got[0] >= least(lsShare) && got[1]+got[2] >= least(beShare) }, ls, be, slow)
		f.told("LS, and BE beside it")
		f.went(leafLS, f.arrived[0])
		f.went(leafBE, f.arrived[1])
		f.went(own, f.arrived[2])
		f.held(classBE, beLimit)
		f.held(own, slowLimit)
		if f.sent(classLS) < 2*f.sent(classBE) {
			n.t.Errorf("%s: LS sent %.0f bytes beside %.0f of BE, want twice as much at least", d.device, f.sent(classLS), f.sent(classBE))
		}

		n.eventually(10*time.Second, func() error {
			told := n.a.figure("koord_rt_koordlet_network_bytes_total", `class="be"`, `direction="`+d.name+`"`)
			if counted := f.after[classBE].bytes; told < counted {
				return fmt.Errorf("%s: koordlet counts %.0f bytes of BE, the kernel had counted %.0f", d.device, told, counted)
			}
			return nil
		})
	}
}

// flooded is what a flood has come to, in bytes.
type flooded struct {
	n *uplink
	d direction
	// arrived is what the other ends have heard, by flow; before and after are the kernel's counts, by class.
	arrived       []float64
	before, after map[string]traffic
	// elapsed is from before to after, in seconds; enough says whether as much has arrived as shall.
	elapsed float64
	enough  bool
}

// flood has all flows send as much as they can for a while. On the way in a sender is held when its queue is full, so each has a
// goroutine. Of any flood it is enough where nothing is asked for.
func (n *uplink) flood(d direction, lasts time.Duration, enough func(arrived []float64) bool, flows ...*flow) *flooded {
	n.t.Helper()
	if enough == nil {
		enough = func([]float64) bool { return true }
	}
	begun := time.Now()
	f := &flooded{n: n, d: d, before: n.traffic(d.device)}
	heard := make([]int64, len(flows))
	for i, l := range flows {
		heard[i] = l.heard.Load()
	}
	arrived := func() []float64 {
		out := make([]float64, len(flows))
		for i, l := range flows {
			out[i] = float64(l.heard.Load() - heard[i])
		}
		return out
	}
	start, longest := time.Now(), lasts
	if emulated() {
		longest = max(lasts, floodEmulated)
	}
	over := func() bool {
		since := time.Since(start)
		return since >= longest || since >= lasts && enough(arrived())
	}
	var senders sync.WaitGroup
	for _, l := range flows {
		if err := l.from.SetWriteDeadline(start.Add(longest)); err != nil {
			n.t.Fatal(err)
		}
		senders.Go(func() {
			for data := make([]byte, 1400); !over(); {
				_, _ = l.from.Write(data) // full queues are the point
			}
		})
	}
	senders.Wait()
	f.arrived = arrived()
	f.after, f.enough = n.traffic(d.device), enough(f.arrived)
	f.elapsed = time.Since(begun).Seconds()
	return f
}

// told tells what has arrived of each flow; not enough is a failure.
func (f *flooded) told(what string) {
	f.n.t.Helper()
	f.n.tell("%s: %.2f s of %s: %.0f bytes arrived; counted for LS %.0f, for BE %.0f", f.d.device, f.elapsed, what, f.arrived, f.sent(classLS), f.sent(classBE))
	if !f.enough {
		f.n.t.Errorf("%s: %s: %.0f bytes arrived, not half of what is guaranteed to them", f.d.device, what, f.arrived)
	}
}

// sent is what the kernel counts for a class during the flood.
func (f *flooded) sent(class string) float64 { return f.after[class].bytes - f.before[class].bytes }

// went: what has arrived of a pod has gone through its class.
func (f *flooded) went(class string, arrived float64) {
	f.n.t.Helper()
	if sent := f.sent(class); sent == 0 || arrived > sent+unheard {
		f.n.t.Errorf("%s: %.0f bytes arrived, %.0f are counted for class %s of their pod", f.d.device, arrived, sent, class)
	}
}

// held: a class had no more than its limit, and had to wait for it.
func (f *flooded) held(class string, percent int) {
	f.n.t.Helper()
	if most := f.n.part(percent)*f.elapsed + bursts; f.sent(class) > most {
		f.n.t.Errorf("%s: class %s sent %.0f bytes in %.2f s, the limit allows %.0f", f.d.device, class, f.sent(class), f.elapsed, most)
	}
	if f.after[class].waits <= f.before[class].waits {
		f.n.t.Errorf("%s: class %s never waited for its limit: it was no flood", f.d.device, class)
	}
}

// traffic is what the kernel counts of a class: bytes, and how often it had to wait for its rate.
type traffic struct{ bytes, waits float64 }

var trafficLines = regexp.MustCompile(`(?m)^class htb (\S+) .*\n Sent (\d+) bytes .*, overlimits (\d+) `)

// traffic counts for each class of a device. One that is not there, or has no classes, has none.
func (n *uplink) traffic(device string) map[string]traffic {
	n.t.Helper()
	out := map[string]traffic{}
	if _, err := net.InterfaceByName(device); err != nil {
		return out
	}
	for _, m := range trafficLines.FindAllStringSubmatch(n.tool("tc", "-s", "class", "show", "dev", device), -1) {
		var t traffic
		for i, number := range []*float64{&t.bytes, &t.waits} {
			v, err := strconv.ParseFloat(m[2+i], 64)
			if err != nil {
				n.t.Fatal(err)
			}
			*number = v
		}
		out[m[1]] = t
	}
	return out
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
