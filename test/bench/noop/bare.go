// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/adapt/nri"
)

// bare is what the promise alone asks for in StartContainer and UpdateContainer: the system calls that put the values of the
// benchmarks' pods in force and read them back, and that keep before each write, in a file, what it will be (D7), without decision, format or registry.
// No plugin that keeps the same promise can be faster.
// In CreateContainer, and in UpdateContainer in place of a decision, it computes for a while: no memory, no lock, no system call, so what it takes
// longer than alone is the machine's doing.
type bare struct {
	v2    bool
	turns int // of the arithmetic, 0 for none
	// alone says that there is no koord-nri beside it, so that the calls stand where koord-nri's would.
	alone bool
	// ledger is appended to before each write.
	ledger file

	mu   sync.Mutex
	pods map[string]*pod // by sandbox id
	kept map[string]file // bursts of containers that are still to be lowered, by container id
	took []measurement
	sum  uint64 // of the arithmetic, kept so that the compiler keeps it
}

// measurement is one event: when it began, and how long the work took.
type measurement struct {
	// event is with the pod's class where classes ask for other calls, "StartContainer/LS", and with what is measured beside them.
	event string
	begin time.Time
	took  time.Duration
}

// What an LS container of the benchmarks gets, in microseconds.
const (
	burst   = "100000"
	lowered = "50000" // before a resize downwards
	quota   = "100000"
	// startQuota is quota as a number: what an LS container starts with, and has again after the load's second resize.
	startQuota = 100_000
	classLabel = "koordinator.sh/qosClass"
)

// recordLength is that of a line of koord-nri's ledger for a burst that is lowered, in bytes.
const recordLength = 800

// newBare makes the file at ledger.
func newBare(work time.Duration, alone bool, ledger string) (*bare, error) {
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil {
		return nil, fmt.Errorf("look at /sys/fs/cgroup: %w", err)
	}
	b := &bare{v2: st.Type == unix.CGROUP2_SUPER_MAGIC, alone: alone, pods: map[string]*pod{}, kept: map[string]file{}}
	if err := b.record(ledger); err != nil {
		return nil, err
	}
	if !alone {
		b.turns = b.turnsFor(work)
	}
	return b, nil
}

// turnsFor is how many turns of the arithmetic fit into work on an idle processor: by the fastest of many tries. Their result
// is kept: a compiler leaves out what nobody asks for.
func (b *bare) turnsFor(work time.Duration) int {
	const try = 10_000
	best := time.Hour
	for range 200 {
		begin := time.Now()
		b.sum = compute(b.sum, try)
		best = min(best, time.Since(begin))
	}
	return int(try * work / max(best, 1))
}

// compute is a chain of multiplications: each needs the one before it, so a processor can do nothing else meanwhile.
func compute(x uint64, turns int) uint64 {
	for range turns {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// create does the arithmetic.
func (b *bare) create() {
	begin := time.Now()
	x := compute(uint64(begin.UnixNano()), b.turns)
	took := time.Since(begin)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum += x
	b.took = append(b.took, measurement{"CreateContainer", begin, took})
}

// prepare makes what update and stop need, when the sandbox runs: for an LS pod a group in the pod's with a container's quota and burst, of which
// the file is kept open, as koord-nri keeps a container's.
// What is made long before is no longer in the processor's caches, as a container's group is not when it starts.
func (b *bare) prepare(sb *api.PodSandbox) error {
	p := &pod{cgroup: nri.Pod(sb).Cgroup, class: sb.GetLabels()[classLabel]}
	if p.class == "LS" {
		p.cgroup += "/bare"
		remove, err := b.sibling(p.cgroup)
		if err != nil {
			return err
		}
		if p.kept, err = open(b.burst(p.cgroup), true); err != nil {
			return errors.Join(err, remove())
		}
		p.remove = func() error { return errors.Join(p.kept.close(), remove()) }
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[sb.GetId()] = p
	return nil
}

// pod is one whose calls are still to be made.
type pod struct {
	cgroup, class string
	remove        func() error // nil where nothing was made
	kept          file         // its burst's
	updated       bool
}

// update does the arithmetic and lowers the burst of an LS pod's group, once for each pod, at its first UpdateContainer: the load's first resize is
// upwards, at which koord-nri calls the kernel for nothing. Right after koord-nri's own calls everything that the kernel looks at would be in
// the caches. What both took is told, and what the system calls did.
func (b *bare) update(sb *api.PodSandbox) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.pods[sb.GetId()]
	if !ok || p.updated || p.class != "LS" {
		return nil
	}
	p.updated = true
	begin := time.Now()
	b.sum += compute(uint64(begin.UnixNano()), b.turns)
	decided := time.Now()
	err := p.kept.put(lowered, b.intend)
	took := time.Since(begin)
	b.took = append(b.took, measurement{"UpdateContainer/" + p.class, decided, took - decided.Sub(begin)},
		measurement{"UpdateContainer/" + p.class + "/decided", begin, took})
	return err
}

// stop does the system calls of one container's start, once for each pod, when its sandbox stops, at which koord-nri calls the kernel
// for nothing either. LS has a burst to write; a BE container's limits are proved, and are read of the pod, whose files the kubelet
// has written, as runc has a container's.
func (b *bare) stop(sb *api.PodSandbox) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.pods[sb.GetId()]
	if !ok {
		return nil
	}
	delete(b.pods, sb.GetId())
	if p.remove != nil {
		defer func() { err = errors.Join(err, p.remove()) }()
	}
	begin := time.Now()
	if p.class == "LS" {
		err = b.writeAndRead(b.burst(p.cgroup), burst)
	} else {
		for _, path := range b.limits(p.cgroup) {
			if err = b.writeAndRead(path, ""); err != nil {
				break
			}
		}
	}
	b.took = append(b.took, measurement{"StartContainer/" + p.class, begin, time.Since(begin)})
	return err
}

// burst is the file that holds a group's burst.
func (b *bare) burst(cgroup string) string {
	if b.v2 {
		return filepath.Join("/sys/fs/cgroup", cgroup, "cpu.max.burst")
	}
	return filepath.Join("/sys/fs/cgroup/cpu", cgroup, "cpu.cfs_burst_us")
}

// sibling makes a group with the quota and the burst of an LS container.
func (b *bare) sibling(cgroup string) (remove func() error, err error) {
	dir, file, value := filepath.Join("/sys/fs/cgroup/cpu", cgroup), "cpu.cfs_quota_us", quota
	if b.v2 {
		dir, file, value = filepath.Join("/sys/fs/cgroup", cgroup), "cpu.max", quota+" 100000"
	}
	remove = func() error {
		if err := unix.Rmdir(dir); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		return nil
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a group of bare's own: %w", err)
	}
	err = os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
	if err == nil {
		err = os.WriteFile(b.burst(cgroup), []byte(burst), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("give bare's group a quota and a burst: %w", err), remove())
	}
	return remove, nil
}

func (b *bare) limits(cgroup string) []string {
	if b.v2 {
		dir := filepath.Join("/sys/fs/cgroup", cgroup)
		return []string{dir + "/cpu.weight", dir + "/cpu.max", dir + "/memory.max"}
	}
	cpu, memory := filepath.Join("/sys/fs/cgroup/cpu", cgroup), filepath.Join("/sys/fs/cgroup/memory", cgroup)
	return []string{cpu + "/cpu.shares", cpu + "/cpu.cfs_quota_us", memory + "/memory.limit_in_bytes"}
}

// writeAndRead opens a file of the kernel, reads what it was, writes value unless it is empty, and reads it back.
func (b *bare) writeAndRead(path, value string) error {
	f, err := open(path, value != "")
	if err != nil {
		return err
	}
	return errors.Join(f.put(value, b.intend), f.close())
}

// record makes the ledger.
func (b *bare) record(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create ledger %s: %w", path, err)
	}
	b.ledger = file{path, fd}
	return nil
}

// intend keeps what is about to be written: some text as long.
func (b *bare) intend() error {
	var line [recordLength]byte
	for i := range line {
		line[i] = 'x'
	}
	line[recordLength-1] = '\n'
	if _, err := unix.Write(b.ledger.fd, line[:]); err != nil {
		return fmt.Errorf("write %s: %w", b.ledger.path, err)
	}
	return nil
}

// file is an open file of the kernel.
type file struct {
	path string
	fd   int
}

func open(path string, write bool) (file, error) {
	mode := unix.O_RDONLY
	if write {
		mode = unix.O_RDWR
	}
	fd, err := unix.Open(path, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return file{}, fmt.Errorf("open %s: %w", path, err)
	}
	return file{path, fd}, nil
}

func (f file) close() error {
	if err := unix.Close(f.fd); err != nil {
		return fmt.Errorf("close %s: %w", f.path, err)
	}
	return nil
}

// put reads what the file was, has it kept that value will be written, writes it unless it is empty, and reads it back.
func (f file) put(value string, intend func() error) error {
	var old [64]byte
	if _, err := unix.Pread(f.fd, old[:], 0); err != nil {
		return fmt.Errorf("read %s: %w", f.path, err)
	}
	if value == "" {
		return nil
	}
	if err := intend(); err != nil {
		return err
	}
	if _, err := unix.Pwrite(f.fd, []byte(value), 0); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	n, err := unix.Pread(f.fd, old[:], 0)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.path, err)
	}
	if got := strings.TrimSpace(string(old[:n])); got != value {
		return fmt.Errorf("%s is %s, not %s", f.path, got, value)
	}
	return nil
}

// save writes a line for each event: its name, when it began, in nanoseconds since 1970, and how many nanoseconds it took.
func (b *bare) save(path string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	for _, m := range b.took {
		fmt.Fprintln(&text, m.event, m.begin.UnixNano(), m.took.Nanoseconds())
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}
