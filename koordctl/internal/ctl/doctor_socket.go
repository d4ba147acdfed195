// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"fmt"
	"os"
)

// socketRule is how a socket is judged.
type socketRule struct {
	// name is the check's.
	name string
	// absent is the verdict on a socket that is not there, missing what to do then; other is what to do about a file that
	// is none.
	absent         verdict
	missing, other string
	// shut are the permissions that nobody may have, open the verdict where somebody does, and tighten what to do then, in
	// front of the path.
	shut    os.FileMode
	open    verdict
	tighten string
}

// checkSocket looks at the socket at a path of the host.
func (e *env) checkSocket(socket string, r socketRule) check {
	c := check{Name: r.name, Result: ok}
	path := e.path(socket)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.Result, c.Detail, c.Next = r.absent, path+" does not exist", r.missing
	case err != nil:
		c.Result, c.Detail, c.Next = fail, err.Error(), "run koordctl as root"
	case st.Mode().Type() != os.ModeSocket:
		c.Result, c.Detail, c.Next = fail, path+" is not a socket", r.other
	case st.Mode().Perm()&r.shut != 0:
		c.Result, c.Detail = r.open, fmt.Sprintf("%s is open to others (%04o)", path, st.Mode().Perm())
		c.Next = r.tighten + path
	default:
		c.Detail = fmt.Sprintf("%s (%04o)", path, st.Mode().Perm())
	}
	return c
}
