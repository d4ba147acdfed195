// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"reflect"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
)

// Every limit of the configuration reaches the View: one that does not would be documented and hold nobody.
func TestLimitsReachTheView(t *testing.T) {
	t.Parallel()
	base := config.Default().Limits
	kind := reflect.TypeFor[config.Limits]()
	for i := range kind.NumField() {
		l := base
		switch f := reflect.ValueOf(&l).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Int, reflect.Int64:
			f.SetInt(f.Int() - 7)
		case reflect.Pointer:
			f.Set(reflect.ValueOf(new(-7)))
		default:
			t.Fatalf("%s is a %s: this test does not know how to change it", kind.Field(i).Name, f.Kind())
		}
		if limits(l) == limits(base) {
			t.Errorf("limits.%s changes nothing", kind.Field(i).Tag.Get("json"))
		}
	}
}
