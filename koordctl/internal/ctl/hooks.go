// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// cookies sees core scheduling from outside: which group a cookie stands for only its maker knows, so any cookie counts
// as the group's.
type cookies struct{ *proc.CoreSched }

var _ apply.Cookies = cookies{}

// InGroup reports whether the process has a cookie, and for the group "" whether it has none.
func (c cookies) InGroup(group string, pid int) (bool, error) {
	cookie, err := c.Cookie(pid)
	return (cookie != 0) == (group != ""), err
}
