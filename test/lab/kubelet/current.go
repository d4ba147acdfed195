// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// current reads back what a cgroup holds, as kubelet does before a resize. shares are
// v1 units on v2 too: 2 + (weight - 1) * 262142 / 9999.
func (g groups) current(n groupName) (values, error) {
	cpu, memory := g.dir(n, "cpu"), g.dir(n, "memory")
	var shares, quota, limit int64
	var err error
	if g.tree.V2() {
		var text string
		if text, err = cgroups.Read(cpu, "cpu.max"); err != nil {
			return values{}, err
		}
		quotaText, _, _ := strings.Cut(text, " ")
		if quota, err = number(quotaText, -1); err != nil {
			return values{}, fmt.Errorf("parse cpu.max: %w", err)
		}
		if shares, err = readNumber(cpu, "cpu.weight", 0); err != nil {
			return values{}, err
		}
		shares = 2 + (shares-1)*262142/9999
		limit, err = readNumber(memory, "memory.max", -1) // so kubelet's conversion of max
	} else {
		if quota, err = readNumber(cpu, "cpu.cfs_quota_us", -1); err != nil {
			return values{}, err
		}
		if shares, err = readNumber(cpu, "cpu.shares", 0); err != nil {
			return values{}, err
		}
		limit, err = readNumber(memory, "memory.limit_in_bytes", -1)
	}
	return values{shares: &shares, quota: &quota, memory: &limit}, err
}

func readNumber(dir, file string, unlimited int64) (int64, error) {
	text, err := cgroups.Read(dir, file)
	if err != nil {
		return 0, err
	}
	n, err := number(text, unlimited)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", file, err)
	}
	return n, nil
}

func number(text string, unlimited int64) (int64, error) {
	if text == "max" {
		return unlimited, nil
	}
	return strconv.ParseInt(text, 10, 64)
}
