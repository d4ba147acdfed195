// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sockdiag

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// pod is a network namespace with a thread in it and some connections from an address of its own to another one.
type pod struct {
	tid   int
	conns []net.Conn
}

// newPod makes a namespace in which every address of 10.0.0.0/8 is at hand, and connections in pairs.
func newPod(t testing.TB, pairs int) *pod {
	t.Helper()
	p := &pod{}
	end := make(chan struct{})
	made := make(chan error)
	aside(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.tid = unix.Gettid()
			var v6 bool
			if v6, err = loopback(); err == nil {
				err = p.connect(pairs, v6)
			}
		}
		made <- err
		<-end
	})
	err := <-made
	t.Cleanup(func() {
		for _, c := range p.conns {
			c.Close()
		}
		close(end)
	})
	kerneltest.Permitted(t, err, unix.CAP_SYS_ADMIN)
	return p
}

// loopback gives the loopback an address whose whole network the kernel then takes for its own, and two of IPv6, where it has that.
func loopback() (v6 bool, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	address, err := unix.NewIfreq("lo")
	if err == nil {
		err = address.SetInet4Addr([]byte{10, 9, 0, 1})
	}
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCSIFADDR, address)
	}
	if err != nil {
		return false, err
	}
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return false, err
	}
	up.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return false, err
	}
	fd6, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, nil
	}
	defer unix.Close(fd6)
	for host := byte(1); host <= 2; host++ {
		req := struct { // struct in6_ifreq of include/uapi/linux/ipv6.h; the loopback is interface 1
			addr          [16]byte
			prefix, index uint32
		}{[16]byte{0xfd, 15: host}, 128, 1}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd6), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&req))); errno != 0 {
			return false, nil //nolint:nilerr // switched off, by sysctl for example
		}
		if err := usable(net.IP(req.addr[:])); err != nil {
			return false, err
		}
	}
	return true, nil
}

// usable waits until an address can be bound to: an IPv6 one is tentative until a worker of the kernel's has run, on the loopback as well.
func usable(ip net.IP) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
		if err == nil {
			return l.Close()
		}
		if !errors.Is(err, unix.EADDRNOTAVAIL) || time.Now().After(deadline) {
			return err
		}
	}
}

// connect is done by the thread in the namespace, where sockets are born. Every second pair is of IPv6; the others' servers are, too, as
// those of programs that listen at every address.
func (p *pod) connect(pairs int, v6 bool) error {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for i := range pairs {
		d, to := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 9, 0, 1)}}, "10.9.0.2"
		if v6 && i%2 == 1 {
			d, to = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("fd00::1")}}, "fd00::2"
		}
		out, err := d.Dial("tcp", net.JoinHostPort(to, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		p.conns = append(p.conns, out)
		in, err := l.Accept()
		if err != nil {
			return err
		}
		p.conns = append(p.conns, in)
	}
	return nil
}

// talk sends a byte each way on every connection, so that each end has sent and heard something.
func (p *pod) talk(t testing.TB) {
	t.Helper()
	var b [1]byte
	for i := 0; i < len(p.conns); i += 2 {
		for _, pair := range [...][2]net.Conn{{p.conns[i], p.conns[i+1]}, {p.conns[i+1], p.conns[i]}} {
			_, err := pair[0].Write(b[:])
			if err == nil {
				_, err = pair[1].Read(b[:])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func open(t testing.TB) *Looker {
	t.Helper()
	l, err := Open("/proc")
	if err != nil {
		var unsupported *proc.UnsupportedError
		if !errors.As(err, &unsupported) || !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		if errors.Is(err, os.ErrPermission) {
			kerneltest.Permitted(t, err, unix.CAP_SYS_ADMIN)
		}
		t.Log(err)
		kerneltest.StepAside(t, kerneltest.Unbuilt("CONFIG_INET_DIAG"))
	}
	t.Cleanup(l.Close)
	return l
}

// answer asks and waits.
func answer(t testing.TB, l *Looker, limit time.Duration, questions ...Question) *Batch {
	t.Helper()
	if !l.Ask(&Batch{Questions: questions, Limit: limit}) {
		t.Fatal("it is busy")
	}
	if l.Ask(&Batch{}) {
		t.Fatal("two batches at once")
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if b := l.Take(); b != nil {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatal("no answer")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestKernel asks the running kernel about namespaces of our own: who has connections that talk has a round trip time, and the
// thread that looks goes home.
func TestKernel(t *testing.T) {
	l := open(t)
	busy, quiet := newPod(t, 3), newPod(t, 0)
	busy.talk(t)
	b := answer(t, l, time.Minute, Question{PID: busy.tid, Since: time.Minute}, Question{PID: quiet.tid, Since: time.Minute},
		Question{PID: os.Getpid(), Since: time.Minute}, Question{PID: 1 << 30, Since: time.Minute})
	if len(b.Answers) != 4 || b.Spent <= 0 {
		t.Fatalf("%+v", b)
	}
	if a := b.Answers[0]; a.Err != nil || a.Connections != 6 || a.RTT <= 0 || a.RTT > time.Minute {
		t.Errorf("three pairs of connections: %+v", a)
	}
	for i, what := range []string{"without connections", "our own namespace", "no process"} {
		if a := b.Answers[i+1]; !nothing(a) {
			t.Errorf("%s: %+v", what, a)
		}
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	// Threads of other tests may be about to end.
	for deadline := time.Now().Add(time.Minute); elsewhere(t, home) != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d threads are in namespaces of others, two of them are the pods'", elsewhere(t, home))
		}
	}
	// What has been quiet since is not new.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		a := answer(t, l, time.Minute, Question{PID: busy.tid}).Answers[0]
		if a.Err == nil && a.Connections == 0 && len(a.Known) == 6 { // idle, but there
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("old round trips are told: %+v", a)
		}
	}
	if b := answer(t, l, 0, Question{PID: busy.tid, Since: time.Minute}); len(b.Answers) != 0 {
		t.Errorf("%d answers without a budget", len(b.Answers))
	}
}

func nothing(a Answer) bool {
	return a.Err == nil && a.RTT == 0 && a.Connections == 0 && len(a.Known) == 0
}

// TestFollow: connections that a walk has found are asked about by name, in both families. One that has ended is told no more, nor one whose ends another socket has, and
// in a namespace of others there is none of them.
func TestFollow(t *testing.T) {
	l := open(t)
	p, other := newPod(t, 20), newPod(t, 1)
	p.talk(t)
	walk := answer(t, l, time.Minute, Question{PID: p.tid, Since: time.Minute}).Answers[0]
	if walk.Err != nil || walk.Connections != MaxKnown || len(walk.Known) != MaxKnown {
		t.Fatalf("a walk: %+v", walk)
	}
	mine := func() []Connection { return slices.Clone(walk.Known) } // the Looker's own from then on
	a := answer(t, l, time.Minute, Question{p.tid, time.Minute, mine()}).Answers[0]
	if a.Err != nil || a.Connections != MaxKnown || a.RTT <= 0 || !slices.Equal(a.Known, walk.Known) {
		t.Errorf("followed: %+v", a)
	}
	if a := answer(t, l, time.Minute, Question{other.tid, time.Minute, mine()}).Answers[0]; !nothing(a) {
		t.Errorf("in a namespace of others: %+v", a)
	}
	stale := mine()
	for i := range stale {
		stale[i].id[47] ^= 1 // of the kernel's number
	}
	if a := answer(t, l, time.Minute, Question{p.tid, time.Minute, stale}).Answers[0]; !nothing(a) {
		t.Errorf("others with the same ends: %+v", a)
	}
	ended := map[netip.AddrPort]bool{} // of who has connected; the other end's port is one for all
	for i, c := range p.conns[:20] {
		if i%2 == 0 {
			ended[c.LocalAddr().(*net.TCPAddr).AddrPort()] = true
		}
		c.Close()
	}
	want := 0
	for _, k := range walk.Known {
		if !ended[side(k, 0)] && !ended[side(k, 1)] {
			want++
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		a := answer(t, l, time.Minute, Question{p.tid, time.Minute, mine()}).Answers[0]
		if a.Err == nil && len(a.Known) == want && a.Connections == want {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("half have ended: %+v, want %d left", a, want)
		}
	}
}

// side is one end of a connection: 0 its own, 1 the other.
func side(k Connection, i int) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(k.id[4+16*i:])).Unmap()
	if k.family == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(k.id[4+16*i:]))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(k.id[2*i:]))
}

// TestOwnNamespace: a process that has the number of one that ended, and is in our own namespace, is nobody's pod.
func TestOwnNamespace(t *testing.T) {
	open(t) // or steps aside
	p := newPod(t, 0)
	type look struct {
		there bool
		err   error
	}
	looks := make(chan look)
	aside(func() {
		defer close(looks)
		th, err := newThread("/proc")
		if err != nil {
			looks <- look{err: err}
			return
		}
		defer th.close()
		for _, pid := range []int{os.Getpid(), 1 << 30, p.tid} {
			there, err := th.enter(pid)
			looks <- look{there, err}
		}
	})
	var got []look
	for l := range looks {
		got = append(got, l)
	}
	if !slices.Equal(got, []look{{}, {}, {there: true}}) {
		t.Errorf("our own, nobody, a pod: %+v", got)
	}
}

// elsewhere counts the threads of this process that are not in a namespace.
func elsewhere(t *testing.T, home string) (n int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		ns, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net")
		if err == nil && ns != home {
			n++
		}
	}
	return n
}

// TestLostThread: a thread that is not at home answers nothing more.
func TestLostThread(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	if a := (&thread{lost: lost, fs: proc.FS(t.TempDir())}).look(Question{PID: 1}); !errors.Is(a.Err, lost) {
		t.Errorf("%+v", a)
	}
}

// BenchmarkLook is one pod with some connections. For a walk the kernel looks at its whole table; known ones it finds.
func BenchmarkLook(b *testing.B) {
	l := open(b)
	for _, pairs := range []int{0, 1, 20} {
		p := newPod(b, pairs)
		p.talk(b)
		known := answer(b, l, time.Minute, Question{PID: p.tid, Since: time.Hour}).Answers[0].Known
		look := func(name string, known []Connection) {
			b.Run(strconv.Itoa(2*pairs)+"-connections/"+name, func(b *testing.B) {
				var spent time.Duration
				for b.Loop() {
					spent += answer(b, l, time.Minute, Question{p.tid, time.Hour, known}).Spent
				}
				b.ReportMetric(float64(spent.Nanoseconds())/1000/float64(b.N), "cpu-us/op")
			})
		}
		look("walk", nil)
		if pairs > 0 {
			look("follow", known)
		}
	}
}
