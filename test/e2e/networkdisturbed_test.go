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
	"sync"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
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
	n.a.strategy(shared + disturbs)
	n.divided()
	n.beyond()
	trips := n.trips()
	n.a.ticks(26, quietly) // 20 s of history, and what is lost at its ends
	calm := trips.over(n, 3)
	begun := time.Now()
	stop := n.pours(4)
	told := []string{
		n.a.interferes(begun, n.ls, "disturbed: network latency"),
		n.a.interferes(begun, n.be, "suspected of disturbing others about network"),
	}
	disturbed := trips.since(begun)
	var egress direction
	for _, d := range n.directions() {
		if d.name == "egress" {
			egress = d
		}
	}
	limit := func() string {
		class := n.filters(egress)[n.be.Addresses[0]]
		parts := strings.Fields(n.classes(egress.device)[class])
		if class == "4b52:15" || len(parts) != 3 { // the class of all best effort
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
	while := trips.over(n, 3)
	if disturbed < 10*time.Millisecond || disturbed < 4*calm || while > disturbed/2 {
		n.t.Errorf("round trips took %s undisturbed, %s disturbed, %s while the other was held to %s", calm, disturbed, while, held)
	}
	stop()
	told = append(told, n.a.interferes(begun, n.be, "released: nobody is disturbed any more"))
	n.eventually(20*time.Second, func() error {
		if text := limit(); text != "" {
			return fmt.Errorf("the pod is still limited to %s", text)
		}
		return nil
	})
	n.t.Logf("round trips take %s undisturbed, %s disturbed, %s while the other is held to %s; %s", calm, disturbed, while, held, strings.Join(told, "; "))
	n.a.strategy(shared)
	n.divided()
}

// beyond makes a network behind the world's, which ends with the test. Whatever comes there is answered: sent back, or
// swallowed.
func (n *uplink) beyond() {
	n.t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		n.t.Fatalf("start a process beyond the world: %v", err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
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

// dial opens a pod's connection to a place beyond the world.
func (n *uplink) dial(run *kubelet.Running, port uint16) (c net.Conn) {
	n.t.Helper()
	pid, err := n.pid(run, "main")
	if err == nil {
		err = inside(pid, func() (err error) {
			c, err = net.DialTimeout("tcp4", netip.AddrPortFrom(netip.MustParseAddr(beyondFar), port).String(), 10*time.Second)
			return err
		})
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// trips are the round trips of a pod that asks something small twenty times a second.
type trips struct {
	mu   sync.Mutex
	took []trip
}

type trip struct {
	at   time.Time
	took time.Duration
}

func (n *uplink) trips() *trips {
	n.t.Helper()
	c, out := n.dial(n.ls, echoPort), &trips{}
	go func() {
		for data := make([]byte, 64); ; time.Sleep(50 * time.Millisecond) {
			begun := time.Now()
			_, err := c.Write(data)
			if err == nil {
				_, err = io.ReadFull(c, data)
			}
			if err != nil {
				return // closed with the test
			}
			out.mu.Lock()
			out.took = append(out.took, trip{begun, time.Since(begun)})
			out.mu.Unlock()
		}
	}()
	return out
}

// since is the median of those that began since then.
func (s *trips) since(from time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for _, t := range s.took {
		if !t.at.Before(from) {
			all = append(all, t.took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

// over is the median over some of koordlet's ticks.
func (s *trips) over(n *uplink, ticks float64) time.Duration {
	n.t.Helper()
	from := time.Now()
	n.a.ticks(ticks, quietly)
	return s.since(from)
}

// pours has the best-effort pod send as much as it can by some connections, until the result is called.
func (n *uplink) pours(connections int) (stop func()) {
	n.t.Helper()
	var all []net.Conn
	for range connections {
		c := n.dial(n.be, sinkPort)
		all = append(all, c)
		go func() {
			for data := make([]byte, 16<<10); ; {
				if _, err := c.Write(data); err != nil {
					return // closed by stop
				}
			}
		}()
	}
	return func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}
