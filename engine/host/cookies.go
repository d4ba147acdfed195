// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// cookies adopts a process whose cookie an earlier life of this program has set, before it says that the process is in
// no group.
type cookies struct{ *proc.CoreSched }

var _ apply.Cookies = cookies{}

// InGroup reports whether the process is in the group.
func (c cookies) InGroup(group string, pid int) (bool, error) {
	ok, err := c.CoreSched.InGroup(group, pid)
	if ok || err != nil || group == "" {
		return ok, err
	}
	return c.Adopt(group, pid)
}
