// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// gauge reads the CPU quota of a control group from a file that stays open. One goroutine at a time may use it.
type gauge struct {
	file *os.File
	// period is the quota's on cgroup v1, where a file of its own has it; "" on v2. Nobody here changes it.
	period string
	buf    [64]byte
}

// openGauge is for a group's directory; on cgroup v1 that of the controller cpu.
func openGauge(dir string, v2 bool) (*gauge, error) {
	g, name := &gauge{}, "cpu.max"
	var err error
	if !v2 {
		name = "cpu.cfs_quota_us"
		g.period, err = cgroups.Read(dir, "cpu.cfs_period_us")
	}
	if err == nil {
		g.file, err = os.Open(filepath.Join(dir, name))
	}
	if err != nil {
		return nil, fmt.Errorf("watch a quota: %w", err)
	}
	return g, nil
}

func (g *gauge) close() error { return g.file.Close() }

// allowed is the quota, in milli-CPUs.
func (g *gauge) allowed() (int, error) {
	text, err := contents(g.file, g.buf[:])
	if err != nil {
		return 0, fmt.Errorf("read quota: %w", err)
	}
	if g.period == "" {
		return milliCPUs(string(text))
	}
	return milliCPUs(strings.TrimSpace(string(text)) + " " + g.period)
}

// contents reads a file of the kernel from its begin.
func contents(f *os.File, buf []byte) ([]byte, error) {
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf[:n], nil
}

// milliCPUs reads "21000 100000" and "max 100000" of cpu.max, and "-1 100000" as cgroup v1 has it.
func milliCPUs(text string) (int, error) {
	first, second, _ := strings.Cut(strings.TrimSpace(text), " ")
	period, err := strconv.Atoi(second)
	if err == nil && period <= 0 {
		err = errors.New("no period")
	}
	quota := unlimited
	if err == nil && first != "max" && first != "-1" {
		quota, err = strconv.Atoi(first)
		quota = quota * 1000 / period
	}
	if err != nil {
		return 0, fmt.Errorf("parse quota %q: %w", text, err)
	}
	return quota, nil
}

// cpus is a quota for people.
func cpus(milli int) string {
	if milli == unlimited {
		return "all"
	}
	return fmt.Sprintf("%.2f", float64(milli)/1000)
}
