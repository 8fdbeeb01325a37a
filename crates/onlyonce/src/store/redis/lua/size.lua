-- How many keys the database has.
return redis.call('DBSIZE')
