package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/locksidecar/locksidecar/internal/locker"
)

// parseList parses the elements of a comma-separated list, without the white
// space around them. The error joins one for each element that is wrong.
func parseList[T any](value string, parse func(string) (T, error)) ([]T, error) {
	var list []T
	var wrong []error
	elements := strings.Split(value, ",")
	for i, element := range elements {
		v, err := parse(strings.TrimSpace(element))
		switch {
		case err == nil:
			list = append(list, v)
		case len(elements) == 1:
			wrong = append(wrong, err)
		default:
			wrong = append(wrong, fmt.Errorf("element %d: %w", i+1, err))
		}
	}
	return list, errors.Join(wrong...)
}

// HostList is a list of host names and IP addresses as they stand in the Host
// header, in lower case, IPv6 addresses in square brackets, without port.
type HostList []string

// Set parses the list.
func (h *HostList) Set(value string) (err error) {
	*h, err = parseList(value, parseHost)
	return err
}

func parseHost(s string) (string, error) {
	if ip, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		if ip.Is6() {
			return "[" + ip.String() + "]", nil
		}
		return ip.String(), nil
	}
	if s == "" || strings.ContainsAny(s, ":/@*[] \t") {
		return "", fmt.Errorf("%q is not a host name or address (no scheme, no port, no wildcard)", s)
	}
	return strings.ToLower(s), nil
}

// KeyList is a list of lock keys.
type KeyList []locker.Key

// Set parses the list.
func (k *KeyList) Set(value string) (err error) {
	*k, err = parseList(value, locker.ParseKey)
	return err
}
