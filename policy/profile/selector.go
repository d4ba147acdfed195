// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"errors"
	"slices"
	"strconv"
)

// Selector is a label selector: all of it must hold. A nil selector holds for everything.
type Selector struct {
	Labels      map[string]string
	Expressions []Expression
}

// Expression is one requirement: In, NotIn, Exists or DoesNotExist.
type Expression struct {
	Key, Operator string
	Values        []string
}

// check finds expressions that mean nothing. Upstream applies a profile with one to every pod.
func (s *Selector) check() error {
	if s == nil {
		return nil
	}
	for i := range s.Expressions {
		if err := s.Expressions[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// all reports whether the selector holds for everything.
func (s *Selector) all() bool { return s == nil || len(s.Labels)+len(s.Expressions) == 0 }

// matches reports whether the labels are selected.
func (s *Selector) matches(labels map[string]string) bool {
	if s == nil {
		return true
	}
	for key, want := range s.Labels {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	for i := range s.Expressions {
		if !s.Expressions[i].holds(labels) {
			return false
		}
	}
	return true
}

func (e *Expression) check() error {
	switch e.Operator {
	case "In", "NotIn":
		if len(e.Values) == 0 {
			return errors.New("operator " + e.Operator + " of key " + strconv.Quote(e.Key) + " needs values")
		}
	case "Exists", "DoesNotExist":
		if len(e.Values) > 0 {
			return errors.New("operator " + e.Operator + " of key " + strconv.Quote(e.Key) + " takes no values")
		}
	default:
		return errors.New("unknown operator " + strconv.Quote(e.Operator) + ", want In, NotIn, Exists or DoesNotExist")
	}
	return nil
}

func (e *Expression) holds(labels map[string]string) bool {
	value, ok := labels[e.Key]
	switch e.Operator {
	case "In":
		return ok && slices.Contains(e.Values, value)
	case "NotIn":
		return !ok || !slices.Contains(e.Values, value)
	case "Exists":
		return ok
	default:
		return !ok
	}
}
