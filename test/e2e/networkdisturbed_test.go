// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/child"
)

// Beyond the world behind the uplink (RFC 5737), past a link that has less than best effort may send: 16 Mbit/s, with a queue of 100 ms.
const (
	beyondNear, beyondFar = "203.0.113.1", "203.0.113.2"
	beyondQueue           = "tbf rate 16mbit burst 16kb limit 200kb"
	echoPort, sinkPort    = 7, 9
)

// disturbed: a best-effort pod fills the queue of a link that is not the node's, and the round trips of an LS pod take as long as that queue.
// koordlet tells who suffers, limits what the other sends at the node's own uplink, finds it guilty, since the round trips are short again,
// and lets it go when nobody is disturbed any more. Round trips are measured here, the limit is read from the kernel.
func (n *uplink) disturbed() {
	n.t.Helper()
	n.a.strategy(n.shared() + disturbs)
	n.divided()
	n.beyond()
	address := func(port uint16) string { return netip.AddrPortFrom(netip.MustParseAddr(beyondFar), port).String() }
	asks := n.loading(n.ls, "asks", address(echoPort), "50ms")
	over := func(ticks float64) time.Duration {
		from := time.Now()
		n.a.ticks(ticks, quietly)
		return asks.trips(from)
	}
	defer asks.stop()
	over(20) // of history
	n.looks(24)
	calm := over(6)
	begun := time.Now()
	pours := n.loading(n.be, "pours", address(sinkPort), "4")
	n.eventually(20*time.Second, func() error { // the load does what it is for
		from := time.Now()
		time.Sleep(time.Second)
		now, ok := asks.took(from)
		if !ok || now < 10*time.Millisecond {
			return fmt.Errorf("round trips take %s, undisturbed %s; koordlet has %g", now, calm, n.a.figure("koord_rt_koordlet_pod_network_rtt_seconds", n.ls.Pod.Name))
		}
		return nil
	})
	told := []string{n.a.interferes(time.Time{}, n.ls, "disturbed: network latency")} // a busy machine may have disturbed it before
	n.a.feels(n.ls, "network latency")
	told = append(told, n.a.interferes(begun, n.be, "suspected of disturbing others about network"))
	disturbed := asks.trips(begun)
	var egress direction
	for _, d := range n.directions() {
		if d.name == "egress" {
			egress = d
		}
	}
	limit := func() string {
		class := n.filters(egress)[n.be.Addresses[0]]
		parts := strings.Fields(n.classes(egress.device)[class])
		if class == leafBE || len(parts) != 3 { // the class of all best effort
			return ""
		}
		return parts[2]
	}
	var held string
	n.eventually(20*time.Second, func() error {
		if held = limit(); held == "" {
			return fmt.Errorf("the pod has no limit at %s", egress.device)
		}
		return nil
	})
	told = append(told, n.a.interferes(begun, n.be, "guilty", "innocent, released"))
	while := over(3)
	if disturbed < 10*time.Millisecond || disturbed < 4*calm || while > disturbed/2 {
		n.t.Errorf("round trips took %s undisturbed, %s disturbed, %s while the other was held to %s", calm, disturbed, while, held)
	}
	pours.stop()
	told = append(told, n.a.interferes(begun, n.be, "released: nobody is disturbed any more"), n.a.interferes(begun, n.ls, "no longer disturbed: network latency"))
	n.a.rests(n.ls)
	n.eventually(20*time.Second, func() error {
		if text := limit(); text != "" {
			return fmt.Errorf("the pod is still limited to %s", text)
		}
		return nil
	})
	n.t.Logf("round trips take %s undisturbed, %s disturbed, %s while the other is held to %s; %s", calm, disturbed, while, held, strings.Join(told, "; "))
	n.a.strategy(n.shared())
	n.divided()
}

// looks waits until koordlet has had so many other round trips of the LS pod: a history is 20 of them, and the first waits for a walk over the kernel's
// table, which on a machine with much memory costs some seconds' share of CPU time.
func (n *uplink) looks(most int) {
	n.t.Helper()
	last, seen := 0.0, 0
	n.eventually(5*time.Minute, func() error {
		if now := n.a.figure("koord_rt_koordlet_pod_network_rtt_seconds", n.ls.Pod.Name); now != last {
			last = now
			seen++
		}
		if seen < most {
			return fmt.Errorf("koordlet has looked %d times at the round trips of %s, want %d", seen, n.ls.Pod.Name, most)
		}
		return nil
	})
}

// beyond makes a network behind the world's, which ends with the test. Whatever comes there is answered: sent back, or
// swallowed.
func (n *uplink) beyond() {
	n.t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	world, far := strconv.Itoa(n.world), strconv.Itoa(cmd.Process.Pid)
	n.tool("nsenter", "-t", world, "-n", "sh", "-ec", "ip link add beyond0 type veth peer name far0 netns "+far+"; ip addr add "+beyondNear+"/24 dev beyond0; "+
		"ip link set beyond0 up; echo 1 >/proc/sys/net/ipv4/ip_forward; tc qdisc add dev beyond0 root "+beyondQueue)
	n.tool("nsenter", "-t", far, "-n", "sh", "-ec", "ip link set lo up; ip addr add "+beyondFar+"/24 dev far0; ip link set far0 up; ip route add default via "+beyondNear)
	for port, answer := range map[uint16]func(net.Conn){
		echoPort: func(c net.Conn) { _, _ = io.Copy(c, c) },
		sinkPort: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	} {
		var l net.Listener
		err := inside(cmd.Process.Pid, func() (err error) {
			l, err = net.Listen("tcp4", netip.AddrPortFrom(netip.MustParseAddr(beyondFar), port).String())
			return err
		})
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // closed with the test
				}
				go func() {
					defer c.Close()
					answer(c)
				}()
			}
		}()
	}

}

// trips is the median of the round trips that began since then, of which there are some.
func (l *burden) trips(from time.Time) time.Duration {
	l.t.Helper()
	median, ok := l.took(from)
	if !ok {
		l.t.Fatalf("load %q prints nothing: %.300q", l.words, l.out.String())
	}
	return median
}

// took is the same; not ok where none that began since then has ended.
func (l *burden) took(from time.Time) (median time.Duration, ok bool) {
	var all []time.Duration
	for line := range strings.Lines(l.out.String()) {
		var at, took int64
		if _, err := fmt.Sscan(line, &at, &took); err == nil && strings.HasSuffix(line, "\n") && at >= from.UnixMicro() {
			all = append(all, time.Duration(took)*time.Microsecond)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}
