// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"errors"
	"fmt"
)

// others is what all programs but the pods used, on average, before the load came and after it went.
func (r *recording) others() (before, after float64) {
	return mean(r.samples[:r.index(r.came)]).others, mean(r.samples[r.index(r.went):]).others
}

// verdict is an error when the loop did not work. It wraps errBusy where others took the place of the load: they have used as much more after it
// as would have come back, or half of that, so that the rest is less than what shows. Or BE had lost to them what it was allowed until then.
func (r *recording) verdict() error {
	yielded, _ := r.reactions()
	all := r.moments()
	before, after := r.others()
	taken := func(lack float64, what string) error {
		if after-before >= lack/2 {
			return fmt.Errorf("%s: %w", what, errBusy)
		}
		return errors.New(what)
	}
	switch last := all[len(all)-1]; {
	case yielded == 0 && all[0].may < r.enough:
		return fmt.Errorf("BE was allowed next to nothing when the load came: %w", errBusy)
	case yielded == 0:
		return errors.New("BE was not allowed less while load was on the LS pod")
	case last.may <= all[1].may:
		return taken(all[0].may-last.may, "BE did not get back what it yielded")
	case r.lends && all[1].lent >= all[0].lent:
		return errors.New("the node lent no less while load was on the LS pod")
	case r.lends && last.lent <= all[1].lent:
		return taken(all[0].lent-last.lent, "the node did not lend more again after the load")
	}
	return nil
}

// judged says on the screen what others have made impossible to show, and is an error where the loop did not work.
func (d *demo) judged(r *recording) error {
	err := r.verdict()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errBusy):
		d.screen.line("\n  Not shown to its end, %v. Try again when the machine is quiet.", err)
		return nil
	}
	return fmt.Errorf("%w\nkoordlet:\n%s", err, d.agent.tail())
}
