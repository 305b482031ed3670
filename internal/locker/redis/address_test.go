package redis

import "testing"

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	one := []Address{TCP("a:1")}
	for name, config := range map[string]Config{
		"no address":       {},
		"two addresses":    {Addrs: []Address{TCP("a:1"), TCP("b:1")}},
		"a brace":          {Addrs: one, KeyPrefix: "{x}"},
		"negative timeout": {Addrs: one, StoreTimeout: -1},
		"negative DB":      {Addrs: one, DB: -1},
	} {
		if b, err := New(config); err == nil {
			b.Close()
			t.Errorf("%s was accepted", name)
		}
	}
}
