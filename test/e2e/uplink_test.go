// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// The uplink and its addresses, of the range for documentation (RFC 5737). Pods have some of 10.200.0.0/13 (cluster.WriteCNI).
const (
	uplinkName              = "up0"
	nodeAddress, podRange   = "198.51.100.2", "10.200.0.0/13"
	worldAddress, floodPort = "198.51.100.1", 9999
)

// uplink is a node whose machine is a network namespace: on the host that of the test's thread, in which all that the test starts is born,
// in a guest the machine's own, which nobody else needs.
type uplink struct {
	*rig
	a            *agent
	apart        bool // the namespace is not the machine's own
	total        int  // what is divided, in Mbit/s
	world        int  // a process in the namespace behind the uplink
	ls, be, slow *kubelet.Running
	flows        map[*kubelet.Running]map[string]*flow // by direction
}

// newUplink makes the namespace, its link to the outside and a containerd that gives pods addresses. Nothing may be fetched from
// inside, so it is done before. What an emulated machine can send is little: there a tenth is divided.
func newUplink(t *testing.T) *uplink {
	t.Helper()
	ctx := t.Context()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	n := &uplink{rig: &rig{t: t}, apart: !emulated(), total: 100, flows: map[*kubelet.Running]map[string]*flow{}}
	if emulated() {
		n.total = 10
		equip(t, cache)
	} else {
		n.fetch(cache)
	}
	options, err := cluster.WithCNI(ctx, cache, host.Options{Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	// Never unlocked: the thread ends with the test, and with it what it has started; threads that inside has used end earlier.
	runtime.LockOSThread()
	if n.apart {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Fatalf("make a network namespace: %v", err)
		}
	}
	n.tool("ip", "link", "set", "lo", "up") // containerd's metrics and the kubelet are asked there
	n.rig = newRig(t, rigOptions{nri: options, podNetwork: true})
	n.connect()
	return n
}

// fetch gets what a host may not have yet.
func (n *uplink) fetch(cache *parts.Cache) {
	n.t.Helper()
	if err := cache.InstallDebian(n.t.Context(), "iproute2", "util-linux", "mount"); err != nil {
		n.t.Fatal(err)
	}
	for _, part := range []string{parts.Containerd24, parts.Runc, parts.Image} {
		if _, err := cache.Get(n.t.Context(), part); err != nil {
			n.t.Fatal(err)
		}
	}
}

// connect makes the uplink and what is behind it.
func (n *uplink) connect() {
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
	n.world = cmd.Process.Pid
	n.tool("ip", "link", "add", uplinkName, "type", "veth", "peer", "name", "world0", "netns", strconv.Itoa(n.world))
	// No shell is between: busybox's would take its own ip.
	if err := inside(n.world, func() error {
		return runIP("link set lo up", "addr add "+worldAddress+"/24 dev world0", "link set world0 up", "route add "+podRange+" via "+nodeAddress)
	}); err != nil {
		n.t.Fatal(err)
	}
	if err := runIP("addr add "+nodeAddress+"/24 dev "+uplinkName, "link set "+uplinkName+" up", "route add default via "+worldAddress); err != nil {
		n.t.Fatal(err)
	}
}

// runIP runs ip for each of these lines, in the network namespace of this thread.
func runIP(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("run ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// tool runs a program in the node's namespace.
func (n *uplink) tool(name string, args ...string) string {
	n.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("run %s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// atHome starts koordlet where process 1 is itself: what it takes for the machine's network is that of process 1.
const atHome = `mount --bind /proc/$$ /proc/1 && exec "$0" "$@"`

// start starts koordlet, which asks the lab's kubelet for the pods.
func (n *uplink) start(spec string) {
	n.t.Helper()
	n.a = n.newAgent()
	n.a.kubelet = n.serve()
	n.extra = maps.Clone(soonJudged)
	n.extra["nodeName"] = servesFor
	if n.apart {
		n.a.here = true
		n.a.dress = func(cmd *exec.Cmd) {
			cmd.Args = append([]string{"sh", "-c", atHome, cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/sh"
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // its mounts are private
		}
	}
	n.a.strategy(spec)
	n.a.start()
}

// direction is one of the uplink's: the device on which it is divided, and where a packet has the pod's address.
type direction struct {
	name, device string
	out          bool
	offset       string
}

func (n *uplink) directions() []direction {
	n.t.Helper()
	link, err := net.InterfaceByName(uplinkName)
	if err != nil {
		n.t.Fatal(err)
	}
	return []direction{
		{"egress", uplinkName, true, "12"}, {"ingress", "krt" + strconv.Itoa(link.Index), false, "16"},
	}
}

// links is all that the kernel has of links and of traffic control, without counters.
func (n *uplink) links() []string {
	n.t.Helper()
	text := n.tool("ip", "-o", "link", "show") + n.tool("tc", "qdisc", "show")
	for _, what := range []string{"class", "filter"} {
		text += n.tool("tc", what, "show", "dev", uplinkName)
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

var (
	classLine  = regexp.MustCompile(`(?m)^class htb (\S+) (?:root|parent (\S+)) .*\brate (\S+) ceil (\S+)`)
	filterLine = regexp.MustCompile(`flowid (\S+).*\n\s+match ([0-9a-f]{8})/ffffffff at (\d+)`)
)

// classes of a device by handle: parent, rate, ceil. A device that is not there has none.
func (n *uplink) classes(device string) map[string]string {
	n.t.Helper()
	out := map[string]string{}
	if _, err := net.InterfaceByName(device); err != nil {
		return out
	}
	for _, m := range classLine.FindAllStringSubmatch(n.tool("tc", "class", "show", "dev", device), -1) {
		if m[2] == "" {
			m[2] = "-"
		}
		out[m[1]] = m[2] + " " + m[3] + " " + m[4]
	}
	return out
}

// filters of a direction: the class that each address leads to.
func (n *uplink) filters(d direction) map[string]string {
	n.t.Helper()
	out := map[string]string{}
	for _, m := range filterLine.FindAllStringSubmatch(n.tool("tc", "filter", "show", "dev", d.device, "parent", "4b52:"), -1) {
		raw, err := hex.DecodeString(m[2])
		if err != nil {
			n.t.Fatal(err)
		}
		if address, ok := netip.AddrFromSlice(raw); ok && m[3] == d.offset {
			out[address.String()] = m[1]
		}
	}
	return out
}

// flow sends datagrams from one namespace to another and counts what arrives.
type flow struct {
	from  *net.UDPConn
	heard *atomic.Int64
}

// inside runs f on a thread in a process's network namespace; sockets that it opens stay there.
func inside(pid int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// between opens both flows between a pod and the world, and waits until something arrives by each. Either end is bound to its
// address and connected, so that pods are told apart; the flows share them, since two of one address and peer could not be.
func (n *uplink) between(pod int, own string, world int, other string) map[string]*flow {
	n.t.Helper()
	inner, outer := n.open(pod, own, other), n.open(world, other, own)
	out := map[string]*flow{"egress": n.hear(inner, outer), "ingress": n.hear(outer, inner)}
	for name, f := range out {
		n.eventually(10*time.Second, func() error {
			_, err := f.from.Write(make([]byte, 64))
			if f.heard.Load() == 0 {
				return fmt.Errorf("%s: nothing arrives between %s and %s: %v", name, own, other, err)
			}
			return nil
		})
	}
	return out
}

// hear counts what arrives at one end of what the other sends.
func (n *uplink) hear(from, at *net.UDPConn) *flow {
	f := &flow{from: from, heard: &atomic.Int64{}}
	go func() {
		for data := make([]byte, 2048); ; {
			size, err := at.Read(data)
			if err != nil && !errors.Is(err, unix.ECONNREFUSED) { // the other end was not open yet when something was sent
				return // closed with the test
			}
			f.heard.Add(int64(size))
		}
	}()
	return f
}

// open opens a socket in a process's namespace, from one address to another.
func (n *uplink) open(pid int, own, other string) (conn *net.UDPConn) {
	n.t.Helper()
	err := inside(pid, func() (err error) {
		port := func(ip string) *net.UDPAddr { return &net.UDPAddr{IP: net.ParseIP(ip), Port: floodPort} }
		dialer := net.Dialer{LocalAddr: port(own), Control: func(_, _ string, raw syscall.RawConn) (err error) { // the world has one address for all
			cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return errors.Join(err, cerr)
		}}
		c, err := dialer.DialContext(n.t.Context(), "udp4", port(other).String())
		if err == nil {
			conn = c.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		n.t.Fatalf("open a socket from %s to %s: %v", own, other, err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}
